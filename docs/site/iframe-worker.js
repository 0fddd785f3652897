// Browsers start no worker from disk (file://). There, a hidden frame does a worker's job, so that the book's search
// works in a folder as it does on a server. The theme knows such a stand-in by its name.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      window.addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow) return;
        const heard = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(heard);
        if (this.onmessage) this.onmessage(heard);
      });
      this.ready = new Promise((done) => (frame.onload = () => done(frame.contentWindow)));
      // In the frame `postMessage` reaches the page around it, as a worker's does.
      frame.srcdoc =
        "<script>window.postMessage = (data) => parent.postMessage(data, '*')</script>" +
        `<script src="${new URL(url, document.baseURI)}"></script>`;
    }
    postMessage(data) {
      this.ready.then((frame) => frame.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
  window.Worker = window.IFrameWorker;
}
