"""Settings of the modulated classifier. Free of torch."""

from typing import ClassVar, Literal

from stages.models.heads.classifier_settings import ClassifierSettings


class ModulatedSettings(ClassifierSettings):
    """A classifier whose input is gated by what a frozen copy of the encoder sees."""

    reads_frozen: ClassVar[bool] = True

    name: Literal["modulated"] = "modulated"  # type: ignore[assignment]
