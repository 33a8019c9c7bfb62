from torch import Tensor

def supported_levels() -> list[str]: ...
def use_level(name: str) -> None: ...
def level() -> str: ...
def cubic(times: Tensor, values: Tensor, offsets: Tensor, slopes: str, coefficients: Tensor, threads: int) -> None: ...
def cubic_backward(
    times: Tensor,
    values: Tensor,
    offsets: Tensor,
    slopes: str,
    gradient: Tensor,
    gradient_values: Tensor,
    gradient_times: Tensor | None,
    threads: int,
) -> None: ...
def linear(times: Tensor, values: Tensor, offsets: Tensor, coefficients: Tensor, threads: int) -> None: ...
def smooth(times: Tensor, values: Tensor, offsets: Tensor, penalty: float, smoothed: Tensor, threads: int) -> None: ...
def lanes(bytes: int) -> int: ...

MOST_FEATURES: int

class Program:
    def __init__(self, ops: Tensor, numbers: Tensor, features: int, input: int, output: int) -> None: ...

def evaluate_rows32(program: Program, values: list[Tensor], inputs: Tensor, results: Tensor, threads: int) -> None: ...
def evaluate_rows64(program: Program, values: list[Tensor], inputs: Tensor, results: Tensor, threads: int) -> None: ...

class _Solve:
    def __init__(
        self,
        flow: Program | None,
        flow_values: list[Tensor],
        jump: Program | None,
        jump_values: list[Tensor],
        controlled: bool,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        initial: Tensor,
        coefficients: Tensor,
        row_inputs: Tensor,
        event_offsets: Tensor,
        piece: Tensor,
        start: Tensor,
        length: Tensor,
        duration: Tensor,
        jump_row: Tensor,
        time: Tensor | None,
        order: Tensor,
        saved_offsets: Tensor,
        saved_event: Tensor,
        every: int,
        registers: int,
        threads: int,
    ) -> None: ...
    def forward(self, saved: Tensor, failed_event: Tensor, checkpoints: Tensor) -> None: ...
    def backward(
        self,
        checkpoints: Tensor,
        saved_gradient: Tensor,
        flow_gradients: list[Tensor],
        jump_gradients: list[Tensor],
        initial_gradient: Tensor,
        coefficient_gradient: Tensor | None,
        row_gradient: Tensor | None,
    ) -> None: ...

class Solve32(_Solve): ...
class Solve64(_Solve): ...
