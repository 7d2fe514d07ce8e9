// CodeMirror as the policy page uses it: YAML, findings, completion, and a difference side by side.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, defaultHighlightStyle, foldGutter, indentOnInput, syntaxHighlighting, syntaxTree } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { unifiedMergeView } from "@codemirror/merge";
import { search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";

export {
  Compartment, EditorState, EditorView, autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap,
  completionKeymap, defaultHighlightStyle, defaultKeymap, drawSelection, foldGutter, highlightActiveLine,
  highlightActiveLineGutter, history, historyKeymap, indentOnInput, keymap, lineNumbers, lintGutter, search,
  searchKeymap, setDiagnostics, syntaxHighlighting, syntaxTree, unifiedMergeView, yaml,
};
