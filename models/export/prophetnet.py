"""ProphetNet (Qi et al. 2020) without the streams that predict later tokens: its decoder's main stream, and the first predicting stream,
whose logits Hugging Face's generate reads.

The first predicting stream of a token is another token behind it: its embedding is a row of `ngram_embeddings` in the place of a
word's, its position is the next one, its weights are those of the main stream, and it sees the main stream up to its token and itself.
So the decoder is one stream with a placeholder after the last token, whose id is the first that no word has.

    python prophetnet.py CHECKPOINT FOLDER

writes a folder of a checkpoint as Hugging Face has it (prophetnet.tokenizer is the list of its words). The decoder's forward is written anew here, and compared with that of Transformers.
"""

import torch

import equal
import placeholder


def bias(attention, hidden, distances, table):
    """A number for each head, query and key: of those that the query has for buckets, that of the key's distance."""
    rows, length = hidden.shape[:2]
    numbers = attention.relative_pos_embeddings(hidden).view(rows, length, attention.num_buckets, attention.num_attn_heads)
    buckets = table[distances].expand(rows, attention.num_attn_heads, distances.shape[0], distances.shape[1])
    return torch.gather(numbers.permute(0, 3, 1, 2), 3, buckets)


def project(attention, x, *names):
    return (placeholder.heads(getattr(attention, f"{name}_proj")(x), attention.num_attn_heads) for name in names)


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, input_ids, attention_mask):
        e = self.encoder
        places = e.position_embeddings.weight[torch.arange(input_ids.shape[1]) + 1 + e.config.pad_token_id]
        hidden = e.embeddings_layer_norm(e.word_embeddings(input_ids) + places)
        mask = (1.0 - attention_mask[:, None, None, :].to(hidden.dtype)) * torch.finfo(hidden.dtype).min
        for layer in e.layers:
            a = layer.self_attn
            query, key, value = project(a, hidden, "query", "key", "value")
            attended = placeholder.attend(query / a.head_dim**0.5, key, value, mask)
            hidden = layer.self_attn_layer_norm(a.out_proj(attended) + hidden)
            hidden = layer.feed_forward_layer_norm(layer.feed_forward(hidden) + hidden)
        return hidden


class Decoder(torch.nn.Module):
    """With past: past of each layer, key, value of its own, then key, value of the encoder's output."""

    def __init__(self, model, past):
        super().__init__()
        from transformers.models.prophetnet import modeling_prophetnet as own

        self.decoder, self.lm_head, self.past = model.get_decoder(), model.lm_head, past
        config = model.config
        self.placeholder = config.vocab_size
        words = [self.decoder.word_embeddings.weight, self.decoder.ngram_embeddings.weight[-1:]]
        self.words = torch.nn.Parameter(torch.cat(words).detach())
        distances = -torch.arange(config.max_position_embeddings)
        self.table = own.compute_relative_buckets(config.num_buckets, config.relative_max_distance, distances).long()

    def forward(self, input_ids, encoder_attention_mask, *rest):
        d, states = self.decoder, []
        tokens = placeholder.place(input_ids, self.placeholder)
        before = rest[0].shape[2] if self.past else 0
        queries, keys = placeholder.positions(tokens.shape[1], before)
        places = d.position_embeddings.weight[queries.squeeze(1) + 1 + d.config.pad_token_id]
        hidden = d.embeddings_layer_norm(torch.nn.functional.embedding(tokens, self.words) + places)
        causal = placeholder.hide(keys <= queries, hidden)
        distances = (queries - keys).clamp(min=0)
        mask = (1.0 - encoder_attention_mask[:, None, None, :].to(hidden.dtype)) * torch.finfo(hidden.dtype).min
        for i, layer in enumerate(d.layers):
            a, c = layer.self_attn, layer.cross_attn
            query, key, value = project(a, hidden, "query", "key", "value")
            if self.past:
                key, value = (torch.cat([old, new], dim=2) for old, new in zip(rest[4 * i : 4 * i + 2], (key, value)))
            states += [placeholder.without(key), placeholder.without(value)]
            added = bias(a, hidden, distances, self.table)
            attended = placeholder.attend(query / a.head_dim**0.5, key, value, added, causal)
            hidden = layer.self_attn_layer_norm(hidden + a.out_proj(attended))
            (query,) = project(c, hidden, "query")
            if self.past:
                key, value = rest[4 * i + 2 : 4 * i + 4]
            else:
                key, value = project(c, rest[0], "key", "value")
                states += [key, value]
            attended = placeholder.attend(query / c.head_dim**0.5, key, value, mask)
            hidden = layer.cross_attn_layer_norm(c.out_proj(attended) + hidden)
            hidden = layer.feed_forward_layer_norm(layer.feed_forward(hidden) + hidden)
        return self.lm_head(hidden[:, -1:]), *states


def stepped(model, ids, mask, tokens):
    """Transformers' logits after the last token, (rows, 1, words). Fed several tokens at once it gives a query the numbers of other tokens and
    heads: it reorders them in get_predict_relative_pos_embeddings as if there were one token, as in a step of generate."""
    past = None
    for i in range(tokens.shape[1]):
        out = model(input_ids=ids, attention_mask=mask, decoder_input_ids=tokens[:, i : i + 1], past_key_values=past, use_cache=True)
        past = out.past_key_values
    return out.logits


def check(model, encoder, first, later):
    """The same logits as Transformers', of prompts and of a token after a past."""
    with torch.no_grad():
        for length in (1, 2, 9):
            ids, start = equal.example(model, 2, 7), equal.example(model, 2, length)
            mask = torch.ones_like(ids)
            mask[1, 5:] = 0
            hidden = encoder(ids, mask)
            logits, *states = first(start, mask, hidden)
            token = start[:, :1] + 3
            again, *_ = later(token, mask, *states)
            for made, tokens in ((logits, start), (again, torch.cat([start, token], dim=1))):
                want = stepped(model, ids, mask, tokens)
                difference, largest = (made - want).abs().max().item(), want.abs().max().item()
                if not difference < equal.NEAR * largest:
                    raise SystemExit(f"prophetnet: its main stream is another model: logits of up to {largest:.3g} differ by {difference:.3g}")


def export(model, folder):
    """encoder_model, decoder_model and decoder_with_past_model, with the names of optimum."""
    config = model.config
    if config.pad_token_id != 0:  # Transformers counts distances after a past from there
        raise SystemExit(f"prophetnet: pad_token_id is {config.pad_token_id}, needed is 0")
    encoder, first, later = Encoder(model), Decoder(model, past=False), Decoder(model, past=True)
    for module in (encoder, first, later):
        module.eval()
    check(model, encoder, first, later)
    ids = equal.example(model, 2, 7)
    mask = torch.ones_like(ids)
    with torch.no_grad():
        hidden = encoder(ids, mask)
        _, *states = first(ids[:, :3], mask, hidden)
    read = {0: "batch_size", 1: "encoder_sequence_length"}
    fed = {0: "batch_size", 1: "decoder_sequence_length"}
    placeholder.write(
        encoder, folder / "encoder_model.onnx", {"input_ids": ids, "attention_mask": mask}, ["last_hidden_state"],
        {name: read for name in ("input_ids", "attention_mask", "last_hidden_state")})
    pairs = [f"{i}.{side}.{part}" for i in range(config.num_decoder_layers) for side in ("decoder", "encoder") for part in ("key", "value")]
    length = {"decoder": "decoder_sequence_length", "encoder": "encoder_sequence_length"}
    placeholder.write(
        first, folder / "decoder_model.onnx",
        {"input_ids": ids[:, :3], "encoder_attention_mask": mask, "encoder_hidden_states": hidden},
        ["logits", *(f"present.{p}" for p in pairs)],
        {"input_ids": fed, "encoder_attention_mask": read, "encoder_hidden_states": read, "logits": {0: "batch_size"},
         **{f"present.{p}": {0: "batch_size", 2: length[p.split(".")[1]]} for p in pairs}})
    own = [p for p in pairs if ".decoder." in p]
    length["decoder"] = "past_decoder_sequence_length"
    placeholder.write(
        later, folder / "decoder_with_past_model.onnx",
        {"input_ids": ids[:, :2], "encoder_attention_mask": mask, **{f"past_key_values.{p}": s for p, s in zip(pairs, states)}},
        ["logits", *(f"present.{p}" for p in own)],
        {"input_ids": fed, "encoder_attention_mask": read, "logits": {0: "batch_size"},
         **{f"past_key_values.{p}": {0: "batch_size", 2: length[p.split(".")[1]]} for p in pairs},
         **{f"present.{p}": {0: "batch_size", 2: "past_decoder_sequence_length + decoder_sequence_length"} for p in own}})


def main():
    from transformers import ProphetNetForConditionalGeneration

    asked = placeholder.arguments(__doc__)
    model = ProphetNetForConditionalGeneration.from_pretrained(asked.checkpoint)
    placeholder.save(model, export, asked.checkpoint / "prophetnet.tokenizer", asked.folder, "$A [SEP]", lowercase=True)


if __name__ == "__main__":
    main()
