// Files in chunks. The server knows how far each has come, so that one that broke off goes on when the same file is chosen again.
const form = document.getElementById("bring-in"), list = document.getElementById("coming"), say = document.getElementById("bring-say");
const base = form.dataset.uploads;
let running = 0;

const size = (bytes) => bytes < 1e6 ? `${Math.round(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

const row = (id, name, total) => {
  const item = document.createElement("li"), title = document.createElement("span"), bar = document.createElement("progress");
  const hint = document.createElement("span"), remove = document.createElement("button");
  title.textContent = name;
  bar.max = total || 1;
  bar.value = 0;
  bar.setAttribute("aria-label", name);
  hint.className = "hint";
  remove.type = "button";
  remove.className = "plain";
  remove.textContent = "Remove";
  remove.dataset.forget = id;
  item.append(title, " ", bar, " ", hint, " ", remove);
  Object.assign(item.dataset, { id, name, size: total });
  list.append(item);
  return item;
};

const show = (item, offset, text) => {
  item.querySelector("progress").value = offset;
  item.querySelector(".hint").textContent = text;
};

const finished = (item) => {
  const field = document.createElement("input");
  Object.assign(field, { type: "hidden", name: "upload", value: item.dataset.id });
  item.append(field);
  show(item, item.dataset.size, "here");
};

const detail = async (answer) => (await answer.json().catch(() => ({}))).detail ?? `The server answered ${answer.status}.`;

// Where the page is not encrypted, browsers hash nothing.
const checksum = async (chunk) => {
  if (!crypto.subtle) return {};
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await chunk.arrayBuffer()));
  return { "Upload-Checksum": `sha256 ${btoa(String.fromCharCode(...digest))}` };
};

const begin = async (file) => {
  const known = [...list.children].find((item) => item.dataset.name === file.name && +item.dataset.size === file.size);
  if (known) return known;
  const answer = await fetch(`${base}?name=${encodeURIComponent(file.name)}`, { method: "POST", headers: { "Upload-Length": file.size } });
  if (!answer.ok) throw new Error(await detail(answer));
  const { id } = await answer.json();
  return row(id, file.name, file.size);
};

const send = async (file) => {
  const item = await begin(file);
  if (item.querySelector("[name=upload]") || item.dataset.busy) return;
  item.dataset.busy = "yes";
  const url = `${base}/${item.dataset.id}`, chunk = 8 << 20;
  let offset = +(await fetch(url, { method: "HEAD" })).headers.get("Upload-Offset");
  let broken = 0;
  while (offset < file.size) {
    if (!item.isConnected) return;
    show(item, offset, `${size(offset)} of ${size(file.size)}`);
    try {
      const body = file.slice(offset, offset + chunk);
      const headers = { "Upload-Offset": offset, "Content-Type": "application/offset+octet-stream", ...await checksum(body) };
      const answer = await fetch(url, { method: "PATCH", headers, body });
      if (!answer.ok && answer.status !== 409) throw new Error(await detail(answer));
      offset = +answer.headers.get("Upload-Offset");
      broken = 0;
    } catch (error) {
      broken += 1;
      show(item, offset, `${error.message} Trying again.`);
      await new Promise((wake) => setTimeout(wake, Math.min(1000 * broken, 10_000)));
      const now = await fetch(url, { method: "HEAD" }).catch(() => null);
      if (now?.status === 404) { item.remove(); return; }
      if (now?.ok) offset = +now.headers.get("Upload-Offset");
    }
  }
  delete item.dataset.busy;
  finished(item);
};

const take = async (files) => {
  document.getElementById("decide").hidden = false;
  const name = document.getElementById("name");
  if (!name.value && files.length) name.value = files[0].name.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "-").replace(/^[.-]+/, "");
  running += 1;
  document.getElementById("bring-button").disabled = true;
  say.textContent = "Files are coming in.";
  const failed = [];
  for (const file of files) await send(file).catch((error) => failed.push(error.message));
  running -= 1;
  if (!running) document.getElementById("bring-button").disabled = false;
  say.textContent = failed.length ? failed.join(" ") : "All files are here.";
};

const input = document.getElementById("files"), drop = document.getElementById("drop");
input.addEventListener("change", () => take([...input.files]));
for (const kind of ["dragover", "dragenter"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => { event.preventDefault(); drop.classList.remove("over"); take([...event.dataTransfer.files]); });
list.addEventListener("click", async (event) => {
  const id = event.target.dataset.forget;
  if (!id) return;
  await fetch(`${base}/${id}`, { method: "DELETE" });
  event.target.closest("li").remove();
});
