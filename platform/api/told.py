"""The records under the name that they had before 0.2."""

from ..record.datasets import *  # noqa: F403
from ..record.jobs import *  # noqa: F403
from ..record.policies import *  # noqa: F403
from ..record.results import *  # noqa: F403
from ..record.settings import *  # noqa: F403
from ..record.status import *  # noqa: F403
