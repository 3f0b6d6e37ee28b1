// What the page needs of the browser beyond Gradio: Esc, scrolling, the address, quiet live regions.
(() => {
  "use strict";
  const NEAR = 100; // pixels from the end within which the page follows the answer
  const TWICE = 500; // milliseconds within which the same key is pressed by mistake
  const byId = (id) => document.getElementById(id);
  const shown = (element) => element !== null && element.offsetParent !== null;
  const swallow = (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  const busy = () => shown(byId("stop"));
  const fill = (field, text) => {
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };

  // -- nothing in an answer passes for a part of the page ------------------------------------------
  // Gradio leaves names in what it sanitises, and named elements hide what the document can do.

  const all = Element.prototype.querySelectorAll;
  const remove = Element.prototype.removeAttribute;
  const NAMED = ".prose :is([id], [name]):not([data-processed], [data-processed] *)"; // or a diagram's
  const unname = (element) => {
    for (const each of all.call(element, NAMED))
      for (const name of ["id", "name"]) remove.call(each, name);
  };
  const disown = (talk) => {
    unname(talk);
    new MutationObserver((changes) => {
      for (const target of new Set(changes.map((each) => each.target))) {
        unname(target);
        typed(target);
      }
    }).observe(talk, { childList: true, subtree: true });
  };

  // -- a question is shown letter for letter: here it becomes again what was typed -----------------

  const asTyped = (text) => text.replace(/^&#32;$/gm, "")
    .replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code));
  const edited = new WeakSet();
  const typed = (target) => {
    for (const field of target.querySelectorAll(".user textarea")) {
      if (edited.has(field)) continue;
      edited.add(field);
      fill(field, asTyped(field.value));
    }
  };

  // -- what is copied ------------------------------------------------------------------------------

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // of a page that came by plain HTTP
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
  };
  const copied = (button) => {
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1500);
    voice.textContent = "Copied.";
  };
  document.addEventListener("click", (event) => {
    const answer = event.target.closest("#talk .component.html button.copy");
    const question = event.target.closest("#talk .message-buttons-right [aria-label='Copy message']");
    if (!answer && !question) return;
    swallow(event);
    const row = question?.closest(".message-buttons-right").previousElementSibling;
    copy(answer?.dataset.copy ?? row.querySelector(".prose p").innerText.replace(/^ $/gm, ""));
    copied(answer ?? question);
  }, { capture: true });

  // -- keys ---------------------------------------------------------------------------------------

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    if (event.target.closest("#talk .user textarea")) document.querySelector("#talk [aria-label=Cancel]")?.click();
    if (!busy()) return;
    if (document.querySelector(":is(dialog[open], [role=listbox]):not(#talk *)")) return;
    event.preventDefault();
    byId("stop").click();
  });

  // A key held down, or pressed twice, asks once; so does a double click, and does not stop it.
  const NOTHING = { text: "", at: 0 };
  let sent = NOTHING;
  let answering = false;
  const ended = () => { // the same words are no second press any more
    if (answering && !busy()) sent = NOTHING;
    answering = busy();
  };
  document.addEventListener("input", () => { sent = NOTHING; });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    if (!event.target.closest("#box")) return;
    const { text, at } = sent;
    sent = { text: event.target.value, at: event.timeStamp };
    if (event.repeat || (text === event.target.value && event.timeStamp - at < TWICE)) swallow(event);
  }, { capture: true });
  document.addEventListener("click", (event) => {
    if (event.detail > 1 && event.target.closest("#send, #stop, #again, #more")) swallow(event);
  }, { capture: true });

  document.addEventListener("click", (event) => {
    if (event.target.closest("#delete") && !confirm("Delete this conversation?"))
      swallow(event);
  }, { capture: true });

  // -- the address tells the conversation: a reload finds it, and Back the one before ---------------

  let told = null; // the conversation that is shown, as far as the address knows
  let at = null; // when that was told
  let returns = false; // the address has gone before, to one that is to be shown

  const addressed = () => new URL(location.href).searchParams.get("c") ?? "";
  const readdress = (talk, anew) => {
    if (talk === addressed()) return;
    const url = new URL(location.href);
    if (talk) url.searchParams.set("c", talk);
    else url.searchParams.delete("c");
    if (anew) history.pushState(null, "", url);
    else history.replaceState(history.state, "", url);
  };
  const address = () => {
    const mark = document.querySelector("#mark [data-talk]")?.dataset;
    if (mark === undefined || mark.at === at) return;
    const { talk } = mark;
    const passed = returns && talk && talk !== addressed(); // gone back once more meanwhile
    if (!passed) {
      readdress(talk, told && !returns);
      returns = false;
    }
    follows ||= talk !== told;
    told = talk;
    at = mark.at;
  };

  window.addEventListener("popstate", () => {
    if (addressed() === told && !returns) return;
    returns = true;
    byId("turn")?.click(); // opens what the address names
  });

  // -- following the answer, unless the reader has scrolled away ------------------------------------

  let follows = true;
  const follow = (talk) => {
    let top = 0;
    let height = 0;
    talk.addEventListener("scroll", () => {
      const near = talk.scrollHeight - talk.scrollTop - talk.clientHeight < NEAR;
      const leaves = talk.scrollTop < top && talk.scrollHeight === height; // else it is drawn anew
      follows = near || (follows && !leaves);
      top = talk.scrollTop;
      height = talk.scrollHeight;
    }, { passive: true });
    const grown = new ResizeObserver(() => {
      if (follows) talk.scrollTop = talk.scrollHeight;
    });
    for (const id of ["past", "now"]) grown.observe(byId(id));
    for (const id of ["send", "again", "more"])
      byId(id)?.addEventListener("click", () => { follows = true; });
    byId("box").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) follows = true;
    });
  };

  // -- what is said aloud -------------------------------------------------------------------------

  const named = (element, name) => {
    if (element && element.ariaLabel !== name) element.setAttribute("aria-label", name);
  };
  const quiet = () => {
    for (const log of document.querySelectorAll("#talk [role=log]"))
      if (log.getAttribute("aria-live") !== "off") log.setAttribute("aria-live", "off");
    named(document.querySelector("#past [role=log]"), "What was said before");
    named(document.querySelector("#now [role=log]"), "The last question and its answer");
    for (const [who, name] of [["user", "Your question"], ["bot", "The answer"]]) {
      const unnamed = `#talk [data-testid=${who}]:not([aria-label="${name}"])`;
      for (const each of document.querySelectorAll(unnamed)) {
        each.setAttribute("role", "group"); // Gradio names it by all its text, anew at each word
        named(each, name);
      }
    }
    byId("now").setAttribute("aria-busy", String(busy()));
  };

  // Gradio's own fields also hold clocks that nobody wants to hear.
  const voice = document.createElement("div");
  voice.id = "voice";
  voice.setAttribute("role", "status");
  voice.setAttribute("aria-live", "polite");

  const speak = () => {
    document.body.append(voice);
    byId("spoken").setAttribute("aria-hidden", "true");
    for (const id of ["spoken", "wrong"]) {
      const words = () => byId(id).querySelector(".prose")?.innerText.trim() ?? "";
      let said = "";
      new MutationObserver(() => {
        const now = words();
        if (now && now !== said) voice.textContent = now;
        said = now;
      }).observe(byId(id), { childList: true, subtree: true, characterData: true });
    }
  };

  // -- what is folded away --------------------------------------------------------------------------

  const unfold = (button, open) => {
    button.setAttribute("aria-expanded", String(open));
    byId(button.id.replace("fold-", "")).hidden = !open;
  };
  const foldable = () => {
    for (const button of document.querySelectorAll("button.fold")) {
      unfold(button, false);
      button.setAttribute("aria-controls", button.id.replace("fold-", ""));
      button.addEventListener("click", () => unfold(button, button.ariaExpanded !== "true"));
    }
  };

  // -- the keyboard stays in the box, and what stands there outlives a reload -----------------------

  const draft = () => {
    const box = byId("box").querySelector("textarea");
    const kept = sessionStorage.getItem("bourn.draft");
    if (kept && !box.value) fill(box, kept);
    sessionStorage.removeItem("bourn.draft");
  };
  window.addEventListener("pagehide", () => {
    const box = byId("box")?.querySelector("textarea");
    if (box?.value) sessionStorage.setItem("bourn.draft", box.value);
  });

  let held = null; // what had it, which may be gone
  document.addEventListener("focusin", (event) => { held = event.target; });
  const focus = () => {
    const lost = document.activeElement === document.body || !shown(document.activeElement);
    if (lost && held !== null && !shown(held)) byId("box").querySelector("textarea")?.focus();
  };

  // -- a narrow screen has no room for both -----------------------------------------------------------

  const fold = () => {
    const open = document.querySelector("#sidebar.open .toggle-button");
    if (open && matchMedia("(max-width: 48rem)").matches) open.click();
  };

  // -- a lost network: what goes on is found again by reading the page anew -------------------------

  window.addEventListener("online", () => { if (busy()) location.reload(); });

  // -- who is no longer logged in is led to the login by reading the page anew -----------------------

  const ask = window.fetch;
  window.fetch = async (...what) => {
    const answer = await ask(...what);
    if (answer.status === 401) location.reload();
    return answer;
  };

  // -- once Gradio has drawn it -------------------------------------------------------------------

  const begin = () => {
    const talk = byId("talk");
    const needed = ["past", "now", "spoken", "wrong", "this", "settings", "fold-this", "fold-settings"];
    if (!talk || !needed.every(byId) || !byId("box")?.querySelector("textarea")) return false;
    disown(talk);
    follow(talk);
    speak();
    draft();
    foldable();
    fold();
    byId("fresh").addEventListener("click", () => byId("box").querySelector("textarea").focus());
    document.addEventListener("change", (event) => { if (event.target.closest("#talks")) fold(); });
    new MutationObserver(() => { ended(); quiet(); focus(); address(); }).observe(document.body, {
      attributes: true, attributeFilter: ["class", "style", "aria-live"], childList: true, subtree: true,
    });
    quiet();
    return true;
  };
  const waiting = new MutationObserver(() => { if (begin()) waiting.disconnect(); });
  waiting.observe(document.documentElement, { childList: true, subtree: true });
})();
