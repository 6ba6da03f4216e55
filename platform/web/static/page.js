// What every page has: marks of changed settings, ways back to a default, errors beside their fields, moments in the reader's time.
const $ = (id) => document.getElementById(id);

const mark = (field) => field.closest(".row")?.classList.toggle("changed", "start" in field.dataset && field.value !== field.dataset.start);

const reveal = (field) => {
  for (let d = field?.closest("details:not([open])"); d; d = field.closest("details:not([open])")) d.open = true;
};

document.addEventListener("input", (event) => mark(event.target));

document.addEventListener("change", (event) => {
  const field = event.target;
  $(`${field.id}-part`)?.replaceChildren(); // settings of what was chosen before no longer hold
  if (!("reload" in field.dataset)) return;
  // Another dataset, algorithm or preset is another form: the server makes it.
  const form = new FormData(field.form), ask = new URLSearchParams();
  for (const name of ["dataset", "algorithm", "preset"]) ask.set(name, form.get(name) ?? "");
  if (field.id !== "preset") ask.delete("preset");
  for (const [name, value] of new URLSearchParams(location.search)) if (name.startsWith("algorithm.")) ask.set(name, value);
  location.search = ask;
}, true);

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-reset], [data-wrong], [data-copy]");
  if (!button) return;
  const { reset, wrong, copy } = button.dataset;
  if (copy) navigator.clipboard.writeText($(copy).textContent).then(() => { button.textContent = "Copied"; });
  const field = $(reset ?? wrong);
  reveal(field);
  if (reset) {
    field.value = field.dataset.start;
    mark(field);
    field.dispatchEvent(new Event("change", { bubbles: true }));
  }
  if (wrong) event.preventDefault();
  field?.focus();
});

document.addEventListener("htmx:beforeRequest", (event) => {
  // A form that htmx only checks is sent whole by its own button.
  if (event.detail.elt.id === "new" && event.detail.requestConfig.triggeringEvent?.type === "submit") event.preventDefault();
});

const settled = () => {
  for (const old of document.querySelectorAll("[aria-invalid]")) {
    old.removeAttribute("aria-invalid");
    if ($(`${old.id}-error`)) $(`${old.id}-error`).textContent = "";
  }
  for (const link of document.querySelectorAll("[data-wrong]")) {
    const field = $(link.dataset.wrong);
    field?.setAttribute("aria-invalid", "true");
    if (field && $(`${field.id}-error`)) $(`${field.id}-error`).textContent = link.textContent;
  }
  if ($("start")) $("start").disabled = !!document.querySelector("#plan [role=alert]");
  for (const time of document.querySelectorAll("time[data-at]")) {
    const at = new Date(1000 * time.dataset.at);
    time.dateTime = at.toISOString();
    time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  }
};
document.addEventListener("htmx:afterSettle", settled);
document.addEventListener("DOMContentLoaded", settled);
