// The parts of a page behind tabs.  The address keeps which one is open: "#usage" opens it,
// and "#history?user=ada" says what it is to show.

/** Show one part at a time; `opened(name, wanted)` is called whenever one is shown. */
export function tabs(list, opened) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const named = (name) => all.find((tab) => tab.dataset.tab === name);

  function show(chosen, wanted = "") {
    for (const tab of all) {
      const open = tab === chosen;
      tab.setAttribute("aria-selected", String(open));
      tab.tabIndex = open ? 0 : -1;
      tab.classList.toggle("active", open);
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !open;
    }
    opened(chosen.dataset.tab, new URLSearchParams(wanted));
  }
  const follow = () => {
    const [name, wanted] = location.hash.slice(1).split("?");
    show(named(name) ?? all[0], wanted);
  };
  const go = (tab) => {
    history.replaceState(null, "", `#${tab.dataset.tab}`);
    show(tab);
  };

  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) go(tab);
  });
  list.addEventListener("keydown", (event) => {
    const turn = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!turn) return;
    const tab = all[(all.indexOf(event.target) + turn + all.length) % all.length];
    tab.focus();
    go(tab);
  });
  window.addEventListener("hashchange", follow);
  follow();
}
