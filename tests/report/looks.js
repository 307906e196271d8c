// Functions that the browser tests run inside the page.
({
  // Pairs of texts whose boxes meet, and texts that leave the page. What is scrolled away or clamped is clipped first.
  overlaps() {
    const clip = (node, box) => {
      for (let at = node.parentElement; at; at = at.parentElement) {
        const style = getComputedStyle(at);
        if (style.overflowX === "visible" && style.overflowY === "visible") continue;
        const edge = at.getBoundingClientRect();
        box = {
          left: Math.max(box.left, edge.left),
          right: Math.min(box.right, edge.right),
          top: Math.max(box.top, edge.top),
          bottom: Math.min(box.bottom, edge.bottom),
        };
      }
      return box;
    };
    const boxes = [];
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode, parent = node.parentElement;
      if (!node.textContent.trim()) continue;
      if (parent.closest(".unseen, script, style, title, noscript, option, select")) continue;
      if (!parent.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const rect of range.getClientRects()) {
        const { left, right, top, bottom } = clip(node, rect);
        if (right - left > 1 && bottom - top > 1) boxes.push({ node, left, right, top, bottom });
      }
    }
    const text = (box) => box.node.textContent.slice(0, 40), slack = 3;
    const found = boxes.filter((a) => a.left < -1 || a.right > innerWidth + 1).map((a) => ["outside", text(a)]);
    boxes.sort((a, b) => a.top - b.top);
    boxes.forEach((a, i) => {
      for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom - slack; j++) {
        const b = boxes[j];
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (a.node !== b.node && wide > slack && high > slack) found.push([text(a), text(b)]);
      }
    });
    return found;
  },

  // Lines of charts whose contrast with the page is below 3, as WCAG 2 asks of graphics.
  faint() {
    const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const ground = light(parse(getComputedStyle(document.body).backgroundColor));
    return [...document.querySelectorAll(".chart path.series, .chart path.leader")].flatMap((node) => {
      const lights = [light(parse(getComputedStyle(node).stroke)), ground].sort((a, b) => b - a);
      const ratio = (lights[0] + 0.05) / (lights[1] + 0.05);
      return ratio < 3 ? [[node.parentNode.dataset.series, ratio.toFixed(2)]] : [];
    });
  },

  // Texts whose contrast with their ground is below 4.5, as WCAG 2 computes it.
  pale() {
    const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const ground = (node) => {
      for (let at = node; at; at = at.parentElement) {
        const colour = parse(getComputedStyle(at).backgroundColor);
        if (colour.length && (colour.length < 4 || colour[3] > 0.5)) return colour;
      }
      return [255, 255, 255];
    };
    const found = [];
    for (const node of document.querySelectorAll("body *")) {
      if (!node.checkVisibility() || node.matches(":disabled, .none")) continue;
      if (![...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())) continue;
      const style = getComputedStyle(node), svg = node.namespaceURI.endsWith("svg");
      const lights = [light(parse(svg ? style.fill : style.color)), light(ground(node))].sort((a, b) => b - a);
      const ratio = (lights[0] + 0.05) / (lights[1] + 0.05);
      if (ratio < 4.5) found.push([node.tagName, node.textContent.slice(0, 30), ratio.toFixed(2)]);
    }
    return found;
  },
})
