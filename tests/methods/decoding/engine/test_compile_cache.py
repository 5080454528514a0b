"""What a process that compiles the loops computes, beside one that loads them from numba's cache."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig
from methods.decoding.engine.engines import engine_of
from tasks.models.pretrained.generation import TextGenerator

torch.set_num_threads(2)
torch.manual_seed(0)
config = Gemma3TextConfig(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
                          num_attention_heads=4, num_key_value_heads=1, head_dim=256)  # attention in threads from 32 on
model = TextGenerator(Gemma3ForCausalLM(config).to(torch.bfloat16).eval(), name="random", hash_of_weights="none")
session = engine_of(model).start([[]], [400])
with torch.inference_mode():
    states = [session.advance([[3 + place % 90]]).float() for place in range(320)]
sys.stdout.buffer.write(torch.cat(states).numpy().tobytes())
"""


@pytest.mark.slow
def test_states_do_not_depend_on_whether_the_step_was_just_compiled(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    states, saved = [], []
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, stdout=subprocess.PIPE)
        states.append(run.stdout)
        saved.append({file: file.stat().st_mtime_ns for file in tmp_path.rglob("*step*.nb?")})
    assert saved[0] and saved[0] == saved[1]  # the second process loaded what the first compiled
    assert len(states[0]) == 320 * 64 * 4 and states[0] == states[1]
