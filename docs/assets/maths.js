// Typeset what Markdown marked as maths: <span class="arithmatex">\(...\)</span> and <div ...>\[...\]</div>.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const source = element.textContent.trim();
    katex.render(source.slice(2, -2), element, { displayMode: source.startsWith("\\["), throwOnError: false });
  }
});
