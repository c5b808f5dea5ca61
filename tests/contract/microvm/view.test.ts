import { viewContract } from "../view.ts";
import { MICROVM } from "./backend.ts";

viewContract(MICROVM);
