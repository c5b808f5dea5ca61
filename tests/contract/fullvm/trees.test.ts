import { treesContract } from "../trees.ts";
import { FULLVM } from "./backend.ts";

treesContract(FULLVM);
