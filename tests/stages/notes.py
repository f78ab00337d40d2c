"""A reporter that keeps what it is told."""

from stages.reporting import Silent


class Notes(Silent):
    """Messages, all and by kind; steps, each with their number; the latest figures."""

    def __init__(self) -> None:
        self.infos: list[str] = []
        self.warnings: list[str] = []
        self.messages: list[str] = []
        self.steps: list[tuple[int, int]] = []
        self.figures: dict[str, float] = {}

    def info(self, message: str) -> None:
        self.infos.append(message)
        self.messages.append(message)

    def warning(self, message: str) -> None:
        self.warnings.append(message)
        self.messages.append(message)

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        self.steps.append((done, total))
        self.figures = figures
