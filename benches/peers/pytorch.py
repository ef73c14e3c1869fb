"""PyTorch's own unscale, check and clip over tensors of given lengths, timed on request.

Argument: "cpu" or "cuda". Says {"torch": ..., "device": ..., "threads": ...}, or {"error": ...} and ends. Then, for every line that it
reads: a JSON list of lengths makes gradients of these lengths and answers "ready"; "go" runs one step and answers its
milliseconds. Ends with its input.
"""

import json
import sys
import time


def say(answer):
    print(answer, flush=True)


device = sys.argv[1]
try:
    import torch
except Exception as error:  # not there, or a library that it needs is not
    say(json.dumps({"error": str(error)}))
    sys.exit(0)
if device == "cuda" and not torch.cuda.is_available():
    say(json.dumps({"error": "PyTorch sees no CUDA device"}))
    sys.exit(0)

torch.manual_seed(1)
name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
say(json.dumps({"torch": torch.__version__, "device": name, "threads": torch.get_num_threads()}))

parameters, gradients, norm = [], [], 0.0


def synchronize():
    if device == "cuda":
        torch.cuda.synchronize()


def make(lengths):
    global parameters, gradients, norm
    parameters, gradients = [], []
    for length in lengths:
        parameter = torch.zeros(length, device=device)
        parameter.grad = torch.randn(length, device=device).mul_(0.01)
        parameters.append(parameter)
    gradients = [parameter.grad for parameter in parameters]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])).item()


def step():
    """Doubles the gradients, then clips them to half their norm, so that they stay as they are."""
    found_inf = torch.zeros((), device=device)
    inverse_scale = torch.full((), 2.0, device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse_scale)
    torch.nn.utils.clip_grad_norm_(parameters, norm, foreach=True)


for line in sys.stdin:
    if line.startswith("["):
        make(json.loads(line))
        say("ready")
        continue
    synchronize()
    start = time.perf_counter()
    step()
    synchronize()
    say((time.perf_counter() - start) * 1e3)
