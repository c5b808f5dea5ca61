import { portsContract } from "../ports.ts";
import { FULLVM } from "./backend.ts";

portsContract(FULLVM);
