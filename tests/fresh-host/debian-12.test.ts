import { freshHostSuite } from "./suite.ts";

freshHostSuite({ distribution: "debian", suite: "bookworm" });
