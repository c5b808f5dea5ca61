import { ENDS, type More, type Program, program } from "./programs.ts";

const { fails, fat, late, loud, ok, refused } = ENDS;

type Expected = Omit<Program, "name" | "call">;

const go = (name: string, body: string, expected: Expected, more?: More) =>
  program("go", name, `package main\n${body}`, expected, more);
const java = (name: string, body: string, expected: Expected, more?: More) =>
  program("java", name, `import java.util.*;\npublic class Main { ${body} }`, expected, more);
const rust = (name: string, body: string, expected: Expected, more?: More) =>
  program("rust", name, body, expected, more);
const main = (body: string) => `public static void main(String[] args) throws Exception { ${body} }`;

/** Programs whose bases are large: a gigabyte of compilers. */
export const HEAVY: readonly Program[] = [
  go("sum", 'import "fmt"\nfunc main() { var a, b int; fmt.Scan(&a, &b); fmt.Println(a + b) }', ok("5\n"), {
    stdin: "2 3",
  }),
  go("unicode", 'import "fmt"\nfunc main() { fmt.Println(len([]rune("Gäß, 世界"))) }', ok("7\n")),
  go(
    "goroutines",
    "func main() { c := make(chan int); for i := 0; i < 1000; i++ { go func() { c <- 1 }() }; n := 0; for i := 0; i < 1000; i++ { n += <-c }; print(n) }",
    { status: "ok" },
  ),
  go("panic", 'func main() { panic("x") }', fails),
  go("nil pointer", "func main() { var p *int; *p = 1 }", fails),
  go("exit status", 'import "os"\nfunc main() { os.Exit(3) }', fails),
  go("deadlock", "func main() { <-make(chan int) }", fails),
  go("endless loop", "func main() { for {} }", late),
  go("sleeper", 'import "time"\nfunc main() { time.Sleep(time.Hour) }', late, { limits: { runMs: 100 } }),
  go(
    "memory",
    "func main() { a := [][]byte{}; for { b := make([]byte, 1<<20); for i := range b { b[i] = 1 }; a = append(a, b) } }",
    fat,
  ),
  go("flood", 'import "fmt"\nfunc main() { for { fmt.Println("flood") } }', loud),
  go("unused variable", "func main() { a := 1 }", refused),
  go("no such package", 'import "no/such"\nfunc main() { such.Do() }', refused),

  java("sum", main("Scanner s = new Scanner(System.in); System.out.println(s.nextInt() + s.nextInt());"), ok("5\n"), {
    stdin: "2 3",
  }),
  java(
    "inner classes",
    `record Pair(int a, int b) {} ${main("Runnable r = () -> System.out.println(new Pair(1, 2)); r.run();")}`,
    ok("Pair[a=1, b=2]\n"),
  ),
  java(
    "collects its garbage",
    main("long n = 0; for (int i = 0; i < 3000; i++) n += new byte[1 << 20].length; System.out.println(n);"),
    ok(`${3000 * 1024 * 1024}\n`),
    { limits: { runMs: 10_000 } },
  ),
  java(
    "threads",
    main(
      "Thread[] t = new Thread[8]; for (int i = 0; i < 8; i++) { t[i] = new Thread(() -> {}); t[i].start(); } for (Thread each : t) each.join(); System.out.println(8);",
    ),
    ok("8\n"),
  ),
  java("exception", main('throw new IllegalStateException("x");'), fails),
  java("deep recursion", `static int f(int n) { return f(n + 1) + 1; } ${main("f(0);")}`, fails),
  java("exit status", main("System.exit(3);"), fails),
  java("endless loop", main("for (;;) {}"), late),
  java("sleeper", main("Thread.sleep(1000000);"), late, { limits: { runMs: 500 } }),
  java(
    "memory",
    main(
      "List<byte[]> a = new ArrayList<>(); for (;;) { byte[] b = new byte[1 << 20]; Arrays.fill(b, (byte) 1); a.add(b); }",
    ),
    fat,
    { limits: { runMs: 10_000 } },
  ),
  java("flood", main('for (;;) System.out.println("flood");'), loud),
  java("syntax error", "void f( {", refused),
  java("type error", main('int a = "x";'), refused),

  rust(
    "sum",
    'use std::io::*;\nfn main() { let mut s = String::new(); stdin().read_to_string(&mut s).unwrap(); println!("{}", s.split_whitespace().map(|w| w.parse::<i64>().unwrap()).sum::<i64>()); }',
    ok("5\n"),
    {
      stdin: "2 3",
    },
  ),
  rust("floats", 'fn main() { println!("{:?} {:?}", 0.1 + 0.2, 1e308f64 * 10.0); }', ok("0.30000000000000004 inf\n")),
  rust("panic", 'fn main() { panic!("x") }', fails),
  rust(
    "index out of bounds",
    'fn main() { let a = vec![1]; let i = std::env::args().count() + 5; println!("{}", a[i]); }',
    fails,
  ),
  rust("exit status", "fn main() { std::process::exit(3) }", fails),
  rust(
    "deep recursion",
    'fn f(n: &mut u64) -> u64 { *n += 1; if *n == u64::MAX { return 0; } let mut a = [*n; 16]; f(&mut a[3]) + a[3] }\nfn main() { println!("{}", f(&mut 0)); }',
    fails,
  ),
  rust("endless loop", "fn main() { loop { std::hint::spin_loop() } }", late),
  rust("sleeper", "fn main() { std::thread::sleep(std::time::Duration::from_secs(1000)) }", late, {
    limits: { runMs: 100 },
  }),
  rust("memory", "fn main() { let mut a = vec![]; loop { a.push(vec![1u8; 1 << 20]) } }", fat),
  rust("flood", 'fn main() { loop { println!("flood") } }', loud),
  rust("borrow error", 'fn main() { let a = vec![1]; let b = a; println!("{:?} {:?}", a, b); }', refused),
  rust("no such crate", "use no_such::Thing;\nfn main() {}", refused),
  rust("macro bomb", "macro_rules! m { ($($t:tt)*) => { m!($($t)* $($t)* x) } }\nfn main() { m!(x) }", refused),
];
