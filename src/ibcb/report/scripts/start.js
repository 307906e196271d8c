document.documentElement.classList.add("js");
startToggle();
startWeights();
startMisfits();
startPrinting();
addEventListener("resize", redraw);
// Charts take room: only then an address can be scrolled to.
redraw();
startExplorer();
