"""Models of paths: encoder, path, flow and jump, readout. Includes the five models of the paper."""

from .dropout import drawing_from as drawing_from
from .gru_d import GRUD as GRUD
from .gru_delta_t import GRUDeltaT as GRUDeltaT
from .gru_ode import GRUODE as GRUODE
from .neural_cde import NeuralCDE as NeuralCDE
from .ode_rnn import ODERNN as ODERNN
from .path_model import PathModel as PathModel
from .piecewise_linear import PiecewiseLinearEncoding as PiecewiseLinearEncoding
from .readout import LinearReadout as LinearReadout
from .readout import Readout as Readout
from .readout import Seen as Seen
from .row_encoder import RowEncoder as RowEncoder
from .row_inputs import RowInputs as RowInputs
from .row_mlp import RowMLP as RowMLP
from .solved_model import SolvedModel as SolvedModel
from .stepper import Stepper as Stepper
from .stream_state import StreamState as StreamState
from .summary_readout import SummaryReadout as SummaryReadout
from .trajectory import Trajectory as Trajectory
