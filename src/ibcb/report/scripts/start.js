document.documentElement.classList.add("js");
startToggle();
startWeights();
startMisfits();
startPrinting();
startExplorer();
addEventListener("resize", redraw);
redraw();
