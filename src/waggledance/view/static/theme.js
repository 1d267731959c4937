"use strict";
// Before the first paint, so that a dark room stays dark.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* no storage: as the system says */ }
