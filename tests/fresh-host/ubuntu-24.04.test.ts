import { freshHostSuite } from "./suite.ts";

freshHostSuite({ distribution: "ubuntu", suite: "noble" });
