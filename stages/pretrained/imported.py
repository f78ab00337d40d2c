"""Settings of the models that are imported. Free of torch and of transformers."""

from stages.models.backbones.window_configs import HuggingFaceConfig, HuggingFaceEncoderDecoderConfig, TextEncoderConfig

Imported = HuggingFaceConfig | HuggingFaceEncoderDecoderConfig | TextEncoderConfig
