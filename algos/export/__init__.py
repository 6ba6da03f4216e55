"""Policies taken out of what trained them: ONNX, TorchScript, packages."""
