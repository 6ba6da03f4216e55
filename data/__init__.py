"""What is learned from: dataset folders, importers, sampling, replay, scalers."""
