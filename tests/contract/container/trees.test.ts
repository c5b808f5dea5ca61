import { treesContract } from "../trees.ts";
import { CONTAINER } from "./backend.ts";

treesContract(CONTAINER);
