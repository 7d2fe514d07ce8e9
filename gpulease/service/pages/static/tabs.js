// The parts of a page behind tabs.  The address keeps which one is open: "#usage" opens it.

/** Show one part at a time; `opened(name)` is called whenever one is shown. */
export function tabs(list, opened) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const named = (name) => all.find((tab) => tab.dataset.tab === name);

  function show(chosen) {
    for (const tab of all) {
      const open = tab === chosen;
      tab.setAttribute("aria-selected", String(open));
      tab.tabIndex = open ? 0 : -1;
      tab.classList.toggle("active", open);
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !open;
    }
    opened(chosen.dataset.tab);
  }
  const follow = () => show(named(location.hash.slice(1)) ?? all[0]);
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
