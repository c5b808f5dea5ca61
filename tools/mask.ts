/** Source text made safe for patterns: what is not code is blank, every offset stays as it was. */
export interface Masked {
  /** Comments are blank; strings, templates and regular expressions keep their delimiters and lose their contents. */
  readonly code: string;
  readonly comments: readonly Comment[];
}

/** One comment with its delimiters. `end` is one past its last character. */
export interface Comment {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** TypeScript: both comment forms, three kinds of quotes with nested templates, regular expressions. */
export function maskTypeScript(text: string): Masked {
  return new Masker(text, "ts").run();
}

/** C: both comment forms, strings and character constants. */
export function maskC(text: string): Masked {
  return new Masker(text, "c").run();
}

/** Text of a language that no check looks into. */
export function maskNothing(text: string): Masked {
  return { code: text, comments: [] };
}

/** After these words a slash starts a regular expression; after any other word it divides. */
const BEFORE_EXPRESSION = /(?:^|[^\w$.])(?:return|typeof|case|in|of|await|yield|delete|void|throw|new|else|do)$/;

class Masker {
  readonly #text: string;
  readonly #language: "ts" | "c";
  readonly #comments: Comment[] = [];
  #code = "";
  #at = 0;
  /** For every open template expression, the braces open inside it. */
  #templates: number[] = [];

  constructor(text: string, language: "ts" | "c") {
    this.#text = text;
    this.#language = language;
  }

  run(): Masked {
    while (this.#at < this.#text.length) this.#step();
    return { code: this.#code, comments: this.#comments };
  }

  #step(): void {
    const here = this.#text[this.#at] ?? "";
    const two = this.#text.slice(this.#at, this.#at + 2);
    if (two === "//" || (two === "#!" && this.#at === 0)) this.#comment("\n", 0);
    else if (two === "/*") this.#comment("*/", 2);
    else if (here === '"' || here === "'") this.#quoted(here);
    else if (this.#language === "ts" && here === "`") this.#template();
    else if (this.#language === "ts" && here === "/" && this.#regexMayStart()) this.#regex();
    else this.#plain(here);
  }

  #plain(here: string): void {
    const open = this.#templates.at(-1);
    if (open !== undefined && here === "{") this.#templates[this.#templates.length - 1] = open + 1;
    if (open !== undefined && here === "}") {
      if (open === 0) {
        this.#templates.pop();
        this.#template();
        return;
      }
      this.#templates[this.#templates.length - 1] = open - 1;
    }
    this.#code += here;
    this.#at++;
  }

  #comment(closer: string, closerLength: number): void {
    const found = this.#text.indexOf(closer, this.#at + 2);
    const end = found === -1 ? this.#text.length : found + closerLength;
    this.#comments.push({ start: this.#at, end, text: this.#text.slice(this.#at, end) });
    this.#blankTo(end);
  }

  #quoted(quote: string): void {
    let end = this.#at + 1;
    while (end < this.#text.length && this.#text[end] !== quote && this.#text[end] !== "\n") {
      end += this.#text[end] === "\\" ? 2 : 1;
    }
    this.#keepOne();
    this.#blankTo(Math.min(end, this.#text.length));
    this.#keepOne();
  }

  /** From the opening backtick, or from the brace that ends an expression, to the closing one or the next expression. */
  #template(): void {
    this.#keepOne();
    let end = this.#at;
    while (end < this.#text.length && this.#text[end] !== "`" && !this.#text.startsWith("${", end)) {
      end += this.#text[end] === "\\" ? 2 : 1;
    }
    this.#blankTo(Math.min(end, this.#text.length));
    if (this.#text[end] === "`") {
      this.#keepOne();
    } else {
      this.#keepOne();
      this.#keepOne();
      this.#templates.push(0);
    }
  }

  #regexMayStart(): boolean {
    const before = this.#code.slice(-200).trimEnd();
    if (before === "" || /[(,=:[!&|?{};+\-*%~^<>]$/.test(before)) return true;
    return BEFORE_EXPRESSION.test(before);
  }

  #regex(): void {
    let end = this.#at + 1;
    let inClass = false;
    while (end < this.#text.length && this.#text[end] !== "\n" && (inClass || this.#text[end] !== "/")) {
      if (this.#text[end] === "[") inClass = true;
      if (this.#text[end] === "]") inClass = false;
      end += this.#text[end] === "\\" ? 2 : 1;
    }
    this.#keepOne();
    this.#blankTo(Math.min(end, this.#text.length));
    this.#keepOne();
  }

  #keepOne(): void {
    this.#code += this.#text[this.#at] ?? "";
    this.#at++;
  }

  #blankTo(end: number): void {
    this.#code += this.#text.slice(this.#at, end).replaceAll(/[^\n]/g, " ");
    this.#at = end;
  }
}
