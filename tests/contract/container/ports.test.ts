import { portsContract } from "../ports.ts";
import { CONTAINER } from "./backend.ts";

portsContract(CONTAINER);
