"""A page in Chromium, measured: what runs off the right edge of a screen."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from html import unescape
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (1280, 390)
"""A laptop, and a phone."""

MEASURE = """
const found = [];
function told(element) { return `${element.tagName.toLowerCase()}.${element.getAttribute("class") || ""}`; }
function measured(page, width) {
  const beyond = [], handles = [];
  page.querySelectorAll("details").forEach(one => { one.open = true; });
  if (page.documentElement.scrollWidth > width) beyond.push(`page ${page.documentElement.scrollWidth}`);
  for (const one of page.querySelectorAll("body, body *")) {
    const holder = one.parentElement && one.parentElement.closest(".wide, svg");
    const box = one.getBoundingClientRect();
    if (!holder && box.width && (box.right > width + 1 || box.left < -1)) beyond.push(`${told(one)} ${box.right}`);
    if (one.scrollWidth > one.clientWidth + 1 && one.clientWidth && !one.closest("svg")) {
      const style = page.defaultView.getComputedStyle(one);
      const shown = /auto|scroll/.test(style.overflowX) && /gradient/.test(style.backgroundImage) && one.tabIndex === 0;
      if (shown) handles.push(told(one));
      else if (style.overflowX !== "visible") beyond.push(`${told(one)} hides ${one.scrollWidth - one.clientWidth}`);
    }
  }
  const above = [...page.querySelectorAll("caption")].filter(one => one.getBoundingClientRect().top <
    one.parentElement.tBodies[0].getBoundingClientRect().top).map(one => one.textContent.trim().slice(0, 40));
  return {beyond, handles, above};
}
window.onload = () => {
  for (const frame of document.querySelectorAll("iframe")) {
    const width = Number(frame.width);
    found.push({page: frame.dataset.page, width, ...measured(frame.contentDocument, width)});
  }
  document.getElementById("found").textContent = JSON.stringify(found);
};
"""


def measured(pages: Sequence[Path], folder: Path) -> list[dict]:
    """Each page at each width: what lies `beyond` its edge, the `handles` of what is wider than its
    place, and what explains a table `above` its figures."""
    frames = [
        f'<iframe data-page="{page.name}" src="{page.as_uri()}" width="{width}" height="900"></iframe>'
        for page in pages
        for width in WIDTHS
    ]
    shell = folder / "measure.html"
    body = f"<style>iframe {{ border: 0 }}</style>{''.join(frames)}<pre id='found'></pre><script>{MEASURE}</script>"
    shell.write_text(f"<!doctype html><meta charset='utf-8'><body>{body}", "utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'browser'}",
        "--dump-dom",
    ]
    options += [
        "--allow-file-access-from-files",
        "--virtual-time-budget=10000",
        "--window-size=1400,1000",
    ]
    ran = [CHROMIUM or "", *options, shell.as_uri()]
    shown = subprocess.run(ran, capture_output=True, text=True, check=True, timeout=110).stdout
    (told,) = re.findall(r'<pre id="found">(.*?)</pre>', shown, re.S)
    return json.loads(unescape(told))
