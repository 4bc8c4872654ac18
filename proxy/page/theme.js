// Before the first paint: the theme that the user chose, if any. The page's only classic script.
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  /* storage is off: the system's theme holds */
}
