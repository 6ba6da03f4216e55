#!/bin/bash
# A Ray cluster in a Slurm allocation for d3ray: on its nodes Ray runs for as long as the job does.
# Written by `d3ray cluster new slurm`. Once, on a login node, an environment that every node sees, from the checkout of d3ray:
#   python3.11 -m venv ~/d3ray-env && ~/d3ray-env/bin/pip install -c constraints.txt '.[s3]'
#
# One training or sweep. Without time left it is queued again and goes on from its last checkpoints; so it does when its first node dies.
# When another node dies, its trials go on elsewhere:
#   sbatch slurm.sh {{ training }}
#
# Or a cluster that stays until its time is over; the job's log says how to reach it from a login node with `d3ray submit`:
#   sbatch slurm.sh
#
# Storage has to be a place that every node reaches under the same name: a shared folder, or a URI. `sbatch --nodes=2 slurm.sh …` and its
# like change the lines below for once.

#SBATCH --job-name={{ name }}
#SBATCH --nodes={{ workers }}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={{ cpus }}
#SBATCH --mem={{ memory_gib }}G
{% if gpus %}
#SBATCH --gpus-per-node={{ gpus }}
{% endif %}
#SBATCH --time={{ slurm.hours }}:00:00
{% for option in ("partition", "account", "qos") if slurm[option] %}
#SBATCH --{{ option }}={{ slurm[option] }}
{% endfor %}
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --signal=B:USR1@120

set -euo pipefail

{% for line in slurm.setup %}
# shellcheck source=/dev/null
{{ line }}
{% endfor %}

{% if tracking %}
export MLFLOW_TRACKING_URI={{ tracking | shell }}
{% else %}
# Where runs are tracked, unless the shell that called sbatch says so already: without it, in a database beside the results.
# export MLFLOW_TRACKING_URI=https://...
{% endif %}
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0
export RAY_health_check_period_ms=2000 RAY_health_check_timeout_ms=3000 RAY_health_check_failure_threshold=5

# Whoever has the token may run any program as you; it lies in your home, which every node sees.
if [[ ! -s ~/.ray/auth_token ]]; then
    mkdir -p ~/.ray
    (umask 077 && ray get-auth-token --generate &> /dev/null)
fi
chmod 600 ~/.ray/auth_token

# Nodes may be shared, so that each job has ports and a folder of its own.
port=$((20000 + SLURM_JOB_ID % 2000 * 5))
scratch={{ slurm.scratch | shell }}/ray-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}
address=$(python -c 'from ray.util import get_node_ip_address; print(get_node_ip_address())'):$port
export address D3RAY_CACHE=$scratch/cache
node=(
    --block --disable-usage-stats --num-gpus="${SLURM_GPUS_ON_NODE:-0}" --min-worker-port=0 --max-worker-port=0
    --dashboard-agent-listen-port=$((port + 3)) --object-store-memory=$((${SLURM_MEM_PER_NODE:-{{ 1024 * memory_gib }}} * 1048576 / 10))
)

others=$((SLURM_JOB_NUM_NODES - 1))
end() {
    trap - EXIT
    kill "${running[@]}" 2> /dev/null || true
    wait "${running[@]}" 2> /dev/null || true
    rm -rf "$scratch"
}
running=()
trap end EXIT

# The first node has the head, and trials too: all but one of its CPUs. Ray gives up on a node that needs more than 30 seconds to start,
# as one may whose Python lies on a busy file system; so it is tried again.
mkdir -p "$scratch"
for _ in 1 2 3; do
    ray start --head "${node[@]}" --port="$port" --temp-dir="$scratch" --dashboard-host=127.0.0.1 --dashboard-port=$((port + 1)) \
        --ray-client-server-port=$((port + 2)) --num-cpus=$((SLURM_CPUS_PER_TASK > 1 ? SLURM_CPUS_PER_TASK - 1 : 1)) \
        > "$scratch/head.log" 2>&1 &
    head=$!
    running=("$head")
    while kill -0 "$head" 2> /dev/null && ! grep -qs "Ray runtime started" "$scratch/head.log"; do sleep 1; done
    kill -0 "$head" 2> /dev/null && break
done
if ! kill -0 "$head" 2> /dev/null; then
    cat "$scratch/head.log"
    exit 1
fi
if ((others > 0)); then
    # shellcheck disable=SC2016 # its arguments are what follows
    on_each='trap "rm -rf \"$0\"" EXIT; trap exit TERM; for _ in 1 2 3; do ray start "$@" && exit; done; exit 1'
    srun --nodes="$others" --ntasks="$others" --cpus-per-task="$SLURM_CPUS_PER_TASK" --exclude="$SLURMD_NODENAME" \
        --no-kill --kill-on-bad-exit=0 --wait=0 --label bash -c "$on_each" "$scratch" \
        "${node[@]}" --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" > "$scratch/workers.log" 2>&1 &
    running+=($!)
fi

if (($# == 0)); then
    echo "Ray runs on $SLURM_JOB_NUM_NODES nodes until the time of job $SLURM_JOB_ID is over, or: scancel $SLURM_JOB_ID"
    echo "From a login node:"
    echo "  ssh -fN -o ExitOnForwardFailure=yes -L $((port + 4)):127.0.0.1:$((port + 1)) $SLURMD_NODENAME"
    echo "  export RAY_AUTH_MODE=token RAY_ADDRESS=http://127.0.0.1:$((port + 4))"
    echo "  d3ray submit train ..."
    trap 'exit 0' USR1 TERM
    wait "$head"
    exit 1
fi

if ((${SLURM_RESTART_COUNT:-0} > 0)) && [[ " $* " != *" --resume "* ]]; then
    set -- "$@" --resume
fi
again=
RAY_ADDRESS=$address D3RAY_SUBMITTED=1 PYTHONUNBUFFERED=1 python -m d3ray.jobs "$@" &
driver=$!
trap 'again=yes; kill -INT "$driver"' USR1 # two minutes are left: what reached a checkpoint is kept
trap 'kill -INT "$driver"' TERM
(
    while kill -0 "$head" 2> /dev/null; do sleep 5; done
    tail -n 20 "$scratch/head.log"
    echo "Ray has ended on $SLURMD_NODENAME, and so has what it was for."
    kill -INT "$driver"
    sleep 30
    kill -KILL "$driver"
) &
running+=($!)
status=138
while ((status == 138 || status == 143)); do # it was one of the signals above that ended the waiting
    wait "$driver" && status=0 || status=$?
done
if [[ -n $again && $status == 130 ]]; then
    echo "There was no time left: job $SLURM_JOB_ID is queued again."
    end
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
