"""The records, under the name that they had first."""

from ..record import *  # noqa: F403
