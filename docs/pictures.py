"""Takes the pictures of docs/web.md: `python docs/pictures.py`, with playwright and chromium, some minutes.

A page is served over a temporary folder; logs of a water tank are brought in, in which a time limit looks like an end, and
policies of a pendulum are trained. Each of `SHOTS` is taken in the light and in the dark and kept as images/page-NAME-SCHEME.webp.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from d3ray import experiments
from d3ray.experiments import datasets

IMAGES = Path(__file__).parent / "images"
WIDTH, HEIGHT = 1180, 800  # of the window, CSS pixels
QUALITY = 82
MOST_BYTES = 80_000
SMALL: dict[str, Any] = {"hidden_units": [64, 64]}
STEPS, EPOCH = 3000, 150


def tank(file: Path) -> None:
    """Logs of a valve that keeps a tank's level: 40 days of 200 steps, whose ends are a time limit stored as ends."""
    rng = np.random.default_rng(0)
    rows = ["episode,observation:0,observation:1,observation:2,action:0,reward,terminated"]
    for day in range(40):
        level, heat = rng.normal(0, 0.5), 18_000 + 400 * rng.normal()
        for step in range(200):
            inflow = np.sin(step / 25) + 0.2 * rng.normal()
            valve = float(np.clip(0.8 * level + 0.3 * rng.normal(), -1, 1))
            rows.append(f"{day},{level:.4f},{inflow:.4f},{heat:.0f},{valve:.4f},{-(level**2):.4f},{int(step == 199)}")
            level, heat = level + 0.1 * (inflow - valve), heat + 30 * rng.normal()
    file.write_text("\n".join(rows) + "\n")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The page, as its command serves it; the link that it prints."""
    command = [sys.executable, "-m", "d3ray.jobs", "web", "port=0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait(30)


def train(folder: Path, name: str, algorithm: dict[str, Any], **more: Any) -> experiments.ExperimentHandle:
    """Begins a training of three seeds on the pendulum's logs."""
    own = {"action_scaler": "min_max", "batch_size": 64, "actor_encoder": SMALL, "critic_encoder": SMALL}
    config = {"dataset": str(folder / "datasets" / "pendulum-replay"), "algorithm": {**own, **algorithm}, "name": name}
    config |= {"n_steps": STEPS, "n_steps_per_epoch": EPOCH, "seeds": [0, 1, 2], "seeds_per_trial": 3}
    config |= {"evaluation": {"environment": "Pendulum-v1", "episodes": 3}, "storage": str(folder / "d3ray_results"), **more}
    return experiments.submit(config, job="sweep" if "search" in more else "train")


def taken(page: Page, name: str) -> None:
    """Keeps what the window shows, in both schemes."""
    page.evaluate("document.activeElement.blur()")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(400)  # charts are drawn anew in a frame of their own
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        file = IMAGES / f"page-{name}-{scheme}.webp"
        image.save(file, quality=QUALITY, method=6)
        assert file.stat().st_size < MOST_BYTES, f"{file.name} has {file.stat().st_size:,} bytes"
        print(file.name, f"{file.stat().st_size:,} bytes", flush=True)


def take(page: Page, url: str, folder: Path) -> None:
    """All of them, in the order in which somebody comes to them."""
    tank(folder / "tank.csv")
    for name in ("pendulum-replay", "cartpole-replay"):
        datasets.derive([f"d3ray/{name}"], name, folder=str(folder / "datasets")).wait(60)
    datasets.ingest([str(folder / "tank.csv")], "water-tank", folder=str(folder / "datasets")).wait(60)
    shutil.copy(folder / "tank.csv", folder / "pump-2026.csv")
    page.goto(f"{url}/datasets")
    page.set_input_files("#files", str(folder / "pump-2026.csv"))
    page.wait_for_selector("text=All files are here.")
    page.fill("#name", "pump-2026")
    taken(page, "datasets")

    page.goto(f"{url}/datasets/water-tank")
    page.wait_for_selector("#doctor")
    taken(page, "doctor")

    sweep = train(folder, "how-greedy", {"name": "IQL"}, search={"algorithm.expectile": {"choice": [0.6, 0.8, 0.95]}})
    sweep.wait(900)
    live = train(folder, "TD3PlusBC-pendulum", {"name": "TD3PlusBC"})
    page.goto(f"{url}/experiments/new?dataset=pendulum-replay&algorithm=IQL&algorithm.expectile=0.8")
    page.wait_for_selector("#yaml")
    page.evaluate("window.scrollTo(0, document.querySelector('details.group[open]').offsetTop - 16)")
    taken(page, "form")

    page.goto(f"{url}/experiments/{live.name}")
    while live.status().share < 0.6:
        time.sleep(0.5)
    page.locator("#smooth").fill("0.5")
    taken(page, "live")
    live.wait(900)

    page.goto(f"{url}/compare?of=how-greedy&of={live.name}")
    page.wait_for_selector("#charts canvas")
    page.locator("#smooth").fill("0.7")
    page.evaluate("window.scrollTo(0, document.getElementById('legend').offsetTop - 60)")
    taken(page, "compare")

    page.goto(f"{url}/experiments/{live.name}/policy")
    page.fill("#observation", "0.5, -0.87, 1.2")
    page.click("text=What would it do?")
    page.click("text=Play an episode")
    page.wait_for_selector(".video", timeout=120_000)
    page.locator(".video").evaluate("image => image.decode()")
    page.evaluate("window.scrollTo(0, document.querySelector('.spaced').offsetTop - 16)")
    taken(page, "policy")


def main() -> None:
    """Serves, trains and takes."""
    folder = Path(tempfile.mkdtemp(prefix="lab-"))
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with served(folder) as link, sync_playwright() as found:
        browser = found.chromium.launch(executable_path=chromium)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(link)
        take(page, re.sub(r"/\?token=.*", "", link), folder)
        browser.close()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
