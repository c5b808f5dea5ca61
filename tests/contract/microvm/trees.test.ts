import { treesContract } from "../trees.ts";
import { MICROVM } from "./backend.ts";

treesContract(MICROVM);
