"""Writes small models of many kinds as graph files, for concert's tests.

    python tools/torch/models.py testdata/models [NAME ...]       # one process stands for 4 ranks
    torchrun --nproc-per-node 2 tools/torch/models.py -record DIR [NAME ...]

Each model is a published architecture at a narrow width, its parameters sharded over all
ranks. With -record every rank's inputs and results are written as well. Needs a GPU,
transformers and torchvision; a model that cannot be traced is named, and the others go on.
"""
import os
import sys
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import concert_export

TOKENS, IMAGES, VOCABULARY = (2, 16), (2, 3, 32, 32), 64
COMMON = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
ROTARY = dict(COMMON, num_key_value_heads=2, head_dim=8, max_position_embeddings=64)


def tokens(shape=TOKENS):
    return torch.randint(0, VOCABULARY, shape)


class Labelled(nn.Module):
    """A model of transformers with its loss as the only result."""

    def __init__(self, name, **config):
        super().__init__()
        import transformers
        cls = getattr(transformers, name)
        self.model = cls(cls.config_class(**config))
        if self.model.loss_type is None:  # transformers logs that it takes this one, which cannot be traced
            self.model.loss_type = "ForCausalLM"

    def forward(self, x, y):
        return self.model(x, labels=y).loss


def language(name, **config):
    return lambda: (Labelled(name, use_cache=False, **config), (tokens(), tokens()))


def vision(name, **config):
    return lambda: (Labelled(name, num_labels=8, **config), (torch.randn(IMAGES), torch.randint(0, 8, (2,))))


class Classified(nn.Module):
    """A classifier with its loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return F.cross_entropy(self.model(x).flatten(0, -2).float(), y.flatten())


def classified(make, inputs=lambda: torch.randn(IMAGES), labels=lambda: torch.randint(0, 8, (2,))):
    return lambda: (Classified(make()), (inputs(), labels()))


def resnet():
    from torchvision.models.resnet import Bottleneck, ResNet
    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=8, width_per_group=8)


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 32, 3, padding=1, groups=4), nn.GroupNorm(4, 32), nn.SiLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.BatchNorm2d(32), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 8))


def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    return ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], num_classes=8)


def efficientnet():
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig
    return EfficientNet([MBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(4, 5, 2, 8, 16, 1)], dropout=0.0, stochastic_depth_prob=0.0, num_classes=8, last_channel=32)


def vit():
    from torchvision.models.vision_transformer import VisionTransformer
    return VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=8)


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        import transformers
        side = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4)
        self.model = transformers.CLIPModel(transformers.CLIPConfig(
            text_config=dict(side, vocab_size=VOCABULARY, max_position_embeddings=16, eos_token_id=63), vision_config=dict(side, image_size=32, patch_size=8), projection_dim=16))

    def forward(self, text, image):
        return self.model(input_ids=text, pixel_values=image, return_loss=True).loss


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        import transformers
        self.model = transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, use_cache=False, decoder_start_token_id=0))

    def forward(self, x, y):
        return self.model(input_ids=x, labels=y).loss


class Dlrm(nn.Module):
    """Embedding bags and a dense part that interact by their inner products."""

    def __init__(self, tables=4, width=16):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(64, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + tables * (tables + 1) // 2, 32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, sparse, y):
        x = self.bottom(dense)
        z = torch.stack([x] + [t(sparse[:, k]) for k, t in enumerate(self.tables)], 1)
        p = torch.bmm(z, z.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return F.binary_cross_entropy_with_logits(self.top(torch.cat([x, p], 1)).squeeze(1).float(), y.float())


class Unet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.ModuleList(self.block(c, d) for c, d in ((4, width), (width, 2 * width)))
        self.middle = self.block(2 * width, 4 * width)
        self.up = nn.ModuleList(self.block(c, d) for c, d in ((6 * width, 2 * width), (3 * width, width)))
        self.last = nn.ConvTranspose2d(width, 4, 1)

    def block(self, c, d):
        return nn.Sequential(nn.Conv2d(c, d, 3, padding=1), nn.GroupNorm(4, d), nn.SiLU(), nn.Conv2d(d, d, 3, padding=1), nn.GroupNorm(4, d), nn.SiLU())

    def forward(self, x, y):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for block, k in zip(self.up, reversed(kept)):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), k], 1))
        return F.mse_loss(self.last(x).float(), y.float())


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True), 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x)))


class Gpt(nn.Module):
    """A decoder with causal attention, written out, whose batch is known at run time only."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.embedding, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(16, width)
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens, labels):
        batch, length = tokens.shape
        x = self.embedding(tokens) + self.positions(torch.arange(length, device=tokens.device))
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        x = x + self.out((scores.masked_fill(later, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return F.cross_entropy((x @ self.embedding.weight.t()).flatten(0, 1).float(), labels.flatten())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.cell, self.other = nn.GRUCell(32, 32), nn.LSTMCell(32, 32)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, x):
        x = self.embedding(x[:, :4])
        h = c = d = x.new_zeros(x.shape[0], 32)
        out = []
        for k in range(x.shape[1]):
            h = self.cell(x[:, k], h)
            c, d = self.other(h, (c, d))
            out.append(c)
        return self.head(torch.stack(out, 1))


class Exchange(torch.autograd.Function):
    """Rows to and from all ranks, as many as two lists say."""

    @staticmethod
    def forward(ctx, x, gets, sends, group):
        ctx.gets, ctx.sends, ctx.group = gets, sends, group
        c10d = torch.ops._c10d_functional
        return c10d.wait_tensor(c10d.all_to_all_single(x, gets, sends, group))

    @staticmethod
    def backward(ctx, grad):
        c10d = torch.ops._c10d_functional
        return c10d.wait_tensor(c10d.all_to_all_single(grad.contiguous(), ctx.sends, ctx.gets, ctx.group)), None, None, None


class Routed(nn.Module):
    """An expert on each rank, which gets the tokens that choose it: how many, tensors say."""

    def __init__(self, dim=16, hidden=24, most=16):
        super().__init__()
        self.ranks, self.most, self.group = dist.get_world_size(), most, dist.group.WORLD.group_name
        self.router = nn.Linear(dim, self.ranks, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        weight, to = self.router(x).float().softmax(-1).max(-1)
        order = torch.argsort(to, stable=True)
        counts = F.one_hot(to, self.ranks).sum(0)
        c10d, ones = torch.ops._c10d_functional, [1] * self.ranks
        sends, gets = counts.tolist(), c10d.wait_tensor(c10d.all_to_all_single(counts, ones, ones, self.group)).tolist()
        for n in sends + gets:
            torch._check_is_size(n)
            torch._check(n <= self.most)
        there = self.down(F.silu(self.up(Exchange.apply(x[order], gets, sends, self.group))))
        back = torch.zeros_like(x).index_put((order,), Exchange.apply(there, sends, gets, self.group))
        return (back * weight[:, None]).pow(2).mean()


class Experts(nn.Module):
    """A mixture of experts on every rank, one after the other: each reads the tokens that chose it."""

    def __init__(self, dim=16, hidden=24, experts=4):
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.up = nn.ModuleList(nn.Linear(dim, hidden) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(hidden, dim) for _ in range(experts))

    def forward(self, x):
        weight, to = self.router(x).float().softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for e, (up, down) in enumerate(zip(self.up, self.down)):
            row, choice = torch.where(to == e)
            out = out.index_add(0, row, down(F.silu(up(x[row]))) * weight[row, choice, None].to(x.dtype))
        return out.pow(2).mean() + x[x > 1].float().sum()


# The sizes of arguments that are known at run time only, the greatest by dimension.
SEQUENCES = {0: {0: 8, 1: 16}, 1: {0: 8, 1: 16}}
DYNAMIC = {
    "convnet_any": {0: {0: 8, 2: 64, 3: 64}, 1: {0: 8}},
    "decoder_any": SEQUENCES,
    "encoder_any": SEQUENCES,
    "gpt_any": {0: {0: 32}, 1: {0: 32}},
    "unet_any": {0: {0: 8}, 1: {0: 8}},
}

MODELS = {
    "bert": language("BertForMaskedLM", **COMMON, max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "bloom": language("BloomForCausalLM", vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4),
    "clip": lambda: (Clip(), (tokens(), torch.randn(IMAGES))),
    "codegen": language("CodeGenForCausalLM", vocab_size=VOCABULARY, n_positions=16, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_inner=64, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
    "cohere": language("CohereForCausalLM", **COMMON, num_key_value_heads=2),
    "convnet_any": classified(convnet, lambda: torch.randn(3, 3, 20, 28), lambda: torch.randint(0, 8, (3,))),
    "convnext": classified(convnext),
    "decoder_any": lambda: (Gpt(), (tokens((3, 11)), tokens((3, 11)))),
    "dlrm": lambda: (Dlrm(), (torch.randn(8, 8), torch.randint(0, 64, (8, 4, 3)), torch.rand(8))),
    "efficientnet": classified(efficientnet),
    "electra": language("ElectraForMaskedLM", **COMMON, embedding_size=16, max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "encoder": classified(Encoder, tokens, tokens),
    "encoder_any": classified(Encoder, lambda: tokens((3, 11)), lambda: tokens((3, 11))),
    "experts": lambda: (Experts(), (torch.randn(16, 16),)),
    "gemma2": language("Gemma2ForCausalLM", **ROTARY),
    "gpt_any": lambda: (Gpt(), (tokens((4, 16)), tokens((4, 16)))),
    "gpt2": language("GPT2LMHeadModel", vocab_size=VOCABULARY, n_positions=16, n_embd=32, n_layer=2, n_head=4, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
    "gpt_neox": language("GPTNeoXForCausalLM", **COMMON, max_position_embeddings=64),
    "gpt_oss": language("GptOssForCausalLM", **ROTARY, num_local_experts=4, num_experts_per_tok=2, layer_types=["sliding_attention", "full_attention"]),
    "jetmoe": language("JetMoeForCausalLM", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_key_value_heads=2, kv_channels=8, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64),
    "llama": language("LlamaForCausalLM", **ROTARY),
    "mamba": language("MambaForCausalLM", vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, state_size=4, time_step_rank=4),
    "mistral": language("MistralForCausalLM", **ROTARY, sliding_window=8),
    "mixtral": language("MixtralForCausalLM", **ROTARY, num_local_experts=4, num_experts_per_tok=2),
    "phi": language("PhiForCausalLM", **COMMON, max_position_embeddings=64),
    "qwen3": language("Qwen3ForCausalLM", **ROTARY),
    "qwen3_moe": language("Qwen3MoeForCausalLM", **ROTARY, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
    "recurrent": classified(Recurrent, tokens, lambda: tokens((2, 4))),
    "resnet50": classified(resnet),
    "routed": lambda: (Routed(), (torch.randn(16, 16),)),
    "swin": vision("SwinForImageClassification", image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, drop_path_rate=0.0),
    "t5": lambda: (T5(), (tokens(), tokens((2, 8)))),
    "unet": lambda: (Unet(), (torch.randn(2, 4, 16, 16), torch.randn(2, 4, 16, 16))),
    "unet_any": lambda: (Unet(), (torch.randn(3, 4, 16, 16), torch.randn(3, 4, 16, 16))),
    "vit": vision("ViTForImageClassification", image_size=32, patch_size=8, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4),
    "vit_tv": classified(vit),
}


def main():
    args, record = sys.argv[1:], False
    if args[:1] == ["-record"]:
        args, record = args[1:], True
    if not args or args[0].startswith("-"):
        sys.exit(__doc__)
    out, names = args[0], args[1:] or list(MODELS)
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if record:
        dist.init_process_group("nccl")
    else:
        concert_export.pretend(4)
    os.makedirs(out, exist_ok=True)
    failed = []
    for name in names:
        torch.manual_seed(1)  # all ranks make the same model
        try:
            model, inputs = MODELS[name]()
            torch.manual_seed(2 + dist.get_rank())
            inputs = [torch.randint_like(x, int(x.max()) + 1) if not x.is_floating_point() else x for x in inputs] if dist.get_rank() else list(inputs)
            model = concert_export.fsdp(model.to("cuda", torch.bfloat16))
            inputs = [x.cuda().to(torch.bfloat16) if x.is_floating_point() else x.cuda() for x in inputs]
            files = concert_export.export(model, inputs, os.path.join(out, name), record=record, dynamic=DYNAMIC.get(name))
            print(name, *map(os.path.basename, files), flush=True)
        except Exception:  # a model that cannot be traced does not keep the others back
            failed.append(name)
            print(name, traceback.format_exc(), file=sys.stderr, flush=True)
    dist.destroy_process_group()
    if failed:
        sys.exit("failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
