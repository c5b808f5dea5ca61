import { outputContract } from "../output.ts";
import { MICROVM } from "./backend.ts";

outputContract(MICROVM);
