//! Markup: text as HTML and XML have it, and templates, which are files of their own.

/// Text for HTML and XML, and for values of attributes.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A template whose `{{name}}` are replaced by their values. Values are markup, and are not searched for names.
/// A name without a value stays.
pub(crate) fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, from_name)) = rest.split_once("{{") {
        filled.push_str(before);
        let named = from_name.split_once("}}").and_then(|(name, after)| {
            let (_, value) = values.iter().find(|(known, _)| *known == name)?;
            Some((*value, after))
        });
        rest = match named {
            Some((value, after)) => {
                filled.push_str(value);
                after
            }
            None => {
                filled.push_str("{{");
                from_name
            }
        };
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::{escaped, filled};

    #[test]
    fn what_a_program_is_called_is_text_and_no_markup() {
        assert_eq!(escaped("<script>'&\""), "&lt;script&gt;&#39;&amp;&quot;");
    }

    #[test]
    fn names_get_their_values_and_values_are_left_alone() {
        let values = [("a", "{{b}}"), ("b", "1")];
        assert_eq!(filled("{{a}} {{b}} {{c}} {{", &values), "{{b}} 1 {{c}} {{");
    }
}
