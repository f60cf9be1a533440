(function () {
  "use strict";
  var root = document.documentElement;
  var button = document.getElementById("theme");
  var media = window.matchMedia("(prefers-color-scheme: dark)");
  function isDark() {
    var said = root.getAttribute("data-theme");
    return said ? said === "dark" : media.matches;
  }
  function show() {
    var dark = isDark();
    button.setAttribute("aria-pressed", String(dark));
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
  }
  button.hidden = false;
  button.addEventListener("click", function () {
    root.setAttribute("data-theme", isDark() ? "light" : "dark");
    show();
  });
  media.addEventListener("change", show);
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (each) { each.open = true; });
  });
  show();
})();
