// Browsers start no worker for a page that was opened from disk. There, and only there, search runs in a hidden frame.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.setAttribute("aria-hidden", "true");
      this.frame.srcdoc =
        "<script>" +
        "var postMessage = (data) => parent.postMessage(data, '*');" +
        "var importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((done, failed) => {" +
        "  const script = document.createElement('script');" +
        "  Object.assign(script, { src: url, onload: done, onerror: failed });" +
        "  document.body.append(script);" +
        "})));" +
        "<" + "/script><script src='" + url + "'><" + "/script>";
      addEventListener("message", (event) => {
        if (event.source === this.frame.contentWindow) {
          const told = new MessageEvent("message", { data: event.data });
          this.dispatchEvent(told);
          if (this.onmessage) this.onmessage(told);
        }
      });
      this.frame.addEventListener("load", () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
      document.body.append(this.frame);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      // As the frame's own window would: its listeners see a message, and no origin.
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = window.Worker = IFrameWorker;
}
