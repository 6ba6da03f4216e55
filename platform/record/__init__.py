"""Everything known of experiments, trials, seeds, policies and datasets: plain data that every interface shows."""

from .base import Computed, Record
from .datasets import Chart, Column, DatasetStatus, EpisodeAbout, EpisodeSteps, Finding, Inspected, Moments, Table, TableColumn
from .jobs import DataJobName, Job, JobName
from .policies import Estimated, EstimateTable, Evidence, Judged, Judgement, Policy, PolicyAbout, Promotion, Rollback, Video, Worth
from .results import Checkpoint, ConfigurationResult, Metrics, Report, Results, SeedResult
from .settings import AlgorithmAbout, Checked, Expected, Planned, Problem
from .status import Budget, ConfigurationStatus, Fault, SeedStatus, State, Status, TrialStatus

__all__ = [
    "AlgorithmAbout", "Budget", "Chart", "Checked", "Checkpoint", "Column", "Computed", "ConfigurationResult",
    "ConfigurationStatus", "DataJobName", "DatasetStatus", "EpisodeAbout", "EpisodeSteps", "EstimateTable", "Estimated",
    "Evidence", "Expected", "Fault", "Finding", "Inspected", "Job", "JobName", "Judged", "Judgement", "Metrics", "Moments",
    "Planned", "Policy", "PolicyAbout", "Problem", "Promotion", "Record", "Report", "Results", "Rollback", "SeedResult",
    "SeedStatus", "State", "Status", "Table", "TableColumn", "TrialStatus", "Video", "Worth",
]  # fmt: skip
