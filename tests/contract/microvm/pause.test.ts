import { pausesContract } from "../pause.ts";
import { MICROVM } from "./backend.ts";

pausesContract(MICROVM);
