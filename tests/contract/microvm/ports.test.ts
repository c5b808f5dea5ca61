import { portsContract } from "../ports.ts";
import { MICROVM } from "./backend.ts";

portsContract(MICROVM);
