import { viewContract } from "../view.ts";
import { CONTAINER } from "./backend.ts";

viewContract(CONTAINER);
