/** An image of the runs: a language of Debian over the common base, a small project in it, and how that is tested. */
export interface ImageRecipe {
  readonly name: string;
  readonly packages: readonly string[];
  /** The project: files of `/project` by name. */
  readonly files: Readonly<Record<string, string>>;
  /** Run in `/project`; writes nothing below it that another run would need. */
  readonly test: string;
}

/** What each test compares: programs of all languages add up the same numbers. */
const COUNT = 100_000;
const SUM = (COUNT * (COUNT + 1)) / 2;

/** What emacs is recommended with, and does not install where nothing is started. */
const NO_MAIL = ["mailutils-", "default-mta-", "exim4-daemon-light-", "exim4-base-", "exim4-config-"];

/** Sixteen languages; the packages are those of Debian 12. */
export const IMAGES: readonly ImageRecipe[] = [
  compiled("java", ["openjdk-17-jdk-headless"], {
    file: "Main.java",
    text: `public class Main { public static void main(String[] a) {
  System.out.println(java.util.stream.LongStream.rangeClosed(1, ${COUNT}).sum()); } }`,
    build: "javac -d /tmp Main.java",
    run: "java -cp /tmp Main",
  }),
  compiled("go", ["golang-go"], {
    file: "main.go",
    text: `package main\nfunc main() { var sum int64; for i := int64(1); i <= ${COUNT}; i++ { sum += i }; println(sum) }`,
    build: "HOME=/tmp GO111MODULE=off go build -o /tmp/main main.go",
    run: "/tmp/main 2>&1",
  }),
  compiled("rust", ["rustc"], {
    file: "main.rs",
    text: `fn main() { println!("{}", (1..=${COUNT}u64).sum::<u64>()); }`,
    build: "rustc -O -o /tmp/main main.rs",
    run: "/tmp/main",
  }),
  compiled("clang", ["clang-14"], {
    file: "main.c",
    text: `#include <stdio.h>\nint main(void) { long sum = 0; for (long i = 1; i <= ${COUNT}; i++) sum += i; printf("%ld\\n", sum); }`,
    build: "clang-14 -O2 -o /tmp/main main.c",
    run: "/tmp/main",
  }),
  {
    name: "latex",
    packages: ["texlive-latex-recommended"],
    files: {
      "main.tex": `\\documentclass{article}\\usepackage{amsmath}\\begin{document}$\\sum = ${SUM}$\\end{document}`,
    },
    test: "pdflatex -output-directory /tmp -interaction batchmode main.tex && head -c 5 /tmp/main.pdf | grep -q PDF",
  },
  scripted("r", ["r-base-core"], `cat(format(sum(as.numeric(1:${COUNT})), scientific = FALSE))`, "Rscript test.txt"),
  scripted(
    "erlang",
    ["erlang-base"],
    "",
    `erl -noshell -eval 'io:format("~p~n", [lists:sum(lists:seq(1, ${COUNT}))]), halt().'`,
  ),
  scripted(
    "scipy",
    ["python3-scipy"],
    `import numpy, scipy.sparse\nprint(int(scipy.sparse.csr_matrix(numpy.arange(1, ${COUNT} + 1)).sum()))\n`,
    "python3 test.txt",
  ),
  scripted(
    "pandas",
    ["python3-pandas"],
    `import pandas\nprint(pandas.DataFrame({"n": range(1, ${COUNT} + 1)}).n.sum())\n`,
    "python3 test.txt",
  ),
  compiled("ocaml", ["ocaml-nox"], {
    file: "main.ml",
    text: `let () = let sum = ref 0 in for i = 1 to ${COUNT} do sum := !sum + i done; Printf.printf "%d\\n" !sum`,
    build:
      "cp main.ml /tmp && cd /tmp && ocamlfind ocamlopt -o /tmp/main main.ml 2>/dev/null || ocamlopt -o /tmp/main main.ml",
    run: "/tmp/main",
  }),
  compiled("fortran", ["gfortran"], {
    file: "main.f90",
    text: `program main\n  integer(8) :: i, s\n  s = 0\n  do i = 1, ${COUNT}\n    s = s + i\n  end do\n  print '(I0)', s\nend program\n`,
    build: "gfortran -O2 -o /tmp/main main.f90",
    run: "/tmp/main",
  }),
  compiled("ada", ["gnat"], {
    file: "main.adb",
    text: `with Ada.Text_IO;\nprocedure Main is\n   Sum : Long_Long_Integer := 0;\nbegin\n   for I in 1 .. ${COUNT} loop\n      Sum := Sum + Long_Long_Integer (I);\n   end loop;\n   Ada.Text_IO.Put_Line (Sum'Image);\nend Main;\n`,
    build: "cp main.adb /tmp && cd /tmp && gnatmake -q main.adb",
    run: "/tmp/main | tr -d ' '",
  }),
  scripted(
    "emacs",
    ["emacs-nox", ...NO_MAIL],
    "",
    `emacs -Q --batch --eval '(princ (format "%d\\n" (/ (* ${COUNT} (1+ ${COUNT})) 2)))'`,
  ),
  scripted(
    "node",
    ["npm"],
    `console.log(Array.from({ length: ${COUNT} }, (_, at) => at + 1).reduce((a, b) => a + b))\n`,
    "npm --version >/dev/null && node test.txt",
  ),
  compiled("cross", ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"], {
    file: "main.c",
    text: `#include <stdio.h>\nint main(void) { printf("%d\\n", ${COUNT}); }`,
    build: "aarch64-linux-gnu-gcc -O2 -o /tmp/main main.c && aarch64-linux-gnu-objdump -h /tmp/main >/dev/null",
    run: `echo ${SUM}`,
  }),
  compiled("pascal", ["fp-compiler"], {
    file: "main.pas",
    text: `program main;\nvar i, sum: int64;\nbegin\n  sum := 0; i := 0;\n  while i < ${COUNT} do begin i := i + 1; sum := sum + i; end;\n  writeln(sum);\nend.\n`,
    build: "fpc -v0 -FU/tmp -o/tmp/main main.pas",
    run: "/tmp/main",
  }),
];

interface Program {
  readonly file: string;
  readonly text: string;
  readonly build: string;
  readonly run: string;
}

function compiled(name: string, packages: readonly string[], { file, text, build, run }: Program): ImageRecipe {
  return { name, packages, files: { [file]: text }, test: `${build} && test "$(${run})" = ${SUM}` };
}

function scripted(name: string, packages: readonly string[], text: string, run: string): ImageRecipe {
  return { name, packages, files: { "test.txt": text }, test: `test "$(${run})" = ${SUM}` };
}
