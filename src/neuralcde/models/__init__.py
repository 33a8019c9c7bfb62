"""Models: from paths to outputs, five of them on one loop."""

from .gru_d import GRUD as GRUD
from .gru_delta_t import GRUDeltaT as GRUDeltaT
from .gru_ode import GRUODE as GRUODE
from .neural_cde import NeuralCDE as NeuralCDE
from .ode_rnn import ODERNN as ODERNN
from .path_model import PathModel as PathModel
