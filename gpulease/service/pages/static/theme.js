// Light or dark, as the hub's own pages remember it.  Loaded before the first paint, so no flash;
// follows a change made in another tab, or on the hub page that frames the card.  And the language.
(() => {
  "use strict";
  const KEY = "jupyterhub-bs-theme";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  function wanted() {
    let stored = null;
    try {
      stored = window.localStorage.getItem(KEY);
    } catch {
      stored = null; // storage is closed to us: the system decides
    }
    if (stored === "light" || stored === "dark") return stored;
    return dark.matches ? "dark" : "light";
  }

  const apply = () => root.setAttribute("data-bs-theme", wanted());

  apply();
  dark.addEventListener("change", apply);
  window.addEventListener("storage", (event) => event.key === KEY && apply());
  window.addEventListener("DOMContentLoaded", () => {
    const language = document.getElementById("gl-language");
    language?.addEventListener("change", () => {
      const prefix = document.querySelector('meta[name="gpulease-prefix"]').content;
      document.cookie = `gpulease-language=${language.value}; path=${prefix}; max-age=31536000; SameSite=Lax`;
      window.location.reload();
    });
    const toggle = document.getElementById("gl-theme");
    if (!toggle) return;
    toggle.addEventListener("click", () => {
      const next = root.getAttribute("data-bs-theme") === "dark" ? "light" : "dark";
      try {
        window.localStorage.setItem(KEY, next);
      } catch {
        // not remembered, but applied
      }
      root.setAttribute("data-bs-theme", next);
    });
  });
})();
