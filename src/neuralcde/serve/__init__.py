"""The service: streams of a saved model over HTTP, with a log that survives a kill."""

from .app import make_app as make_app
from .limits import Limits as Limits
from .push_log import LogError as LogError
from .push_log import PushLog as PushLog
from .service import Service as Service
