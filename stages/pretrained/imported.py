"""Settings of the models that are imported. Free of torch and of transformers."""

from stages.models.backbones.huggingface_config import HuggingFaceConfig
from stages.models.backbones.huggingface_encoder_decoder_config import HuggingFaceEncoderDecoderConfig
from stages.models.backbones.text_encoder_config import TextEncoderConfig

Imported = HuggingFaceConfig | HuggingFaceEncoderDecoderConfig | TextEncoderConfig
