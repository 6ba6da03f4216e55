"""Tables with a row a step: CSV, Parquet, LeRobot's."""
